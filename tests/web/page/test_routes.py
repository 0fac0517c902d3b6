import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

import diptych
from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.errors import Busy
from diptych.web.schemas import FoundEntry, SearchAnswer
from diptych.web.settings import ServerSettings
from tests.encoders.pictures import picture
from tests.html_page import Page
from tests.search import tiny
from tests.web.models import camp_folder, own_folders, vse_folder
from tests.web.serving import TOKEN, client, small_index

__all__ = ["camp_folder", "own_folders", "vse_folder"]  # fixtures

SOURCE = Path(diptych.__file__).parent
STATIC = [path for room in ("web", "explain", "common") for path in (SOURCE / room / "static").iterdir()]
HOSTILE = """"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}"""


class Shown(Page):
    """A page of the server."""

    def has(self, attribute: str) -> list[dict[str, str]]:
        return [a for _, a in self.elements if attribute in a]

    @property
    def pictures(self) -> list[dict[str, str]]:
        """All images that are loaded, in their order."""
        return [a for a in self.all("img") if a.get("src")]

    @property
    def ids(self) -> list[str]:
        """Of the results, in their order."""
        return [a["data-id"] for a in self.has("data-id")]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, vse_folder: str, camp_folder: str) -> Iterator[FastAPI]:
    with small_index(tmp_path_factory.mktemp("page"), vse_folder) as index:
        settings = ServerSettings(token=TOKEN, rerank=camp_folder, credits="Drawn & <made> here.")
        with client(made := create_app(settings, index)):
            yield made


@pytest.fixture
def web(app: FastAPI) -> TestClient:
    return client(app)


def get(web: TestClient, address: str, status: int = 200, **params: object) -> Shown:
    response = web.get(address, params=params) if params else web.get(address)  # type: ignore[arg-type]
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    return Shown(response.text)


def png(image: Image.Image | None = None) -> bytes:
    data = io.BytesIO()
    (image or picture(40, 30, seed=3)).save(data, "png")
    return data.getvalue()


def assert_harmless(page: Page) -> None:
    """Nothing that a strict policy forbids, and nothing from elsewhere."""
    assert [a for t, a in page.elements if t == "script"] == [{"type": "module", "src": "/static/page.js"}]
    assert not [a for t, a in page.elements if t in ("style", "iframe", "object", "base")]
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action", "srcset"):
            assert attributes.get(name, "/").startswith(("/", "#")), attributes
            assert not attributes.get(name, "").startswith("//")


def test_the_start_page_is_a_search_box_and_some_pictures(web: TestClient) -> None:
    page = get(web, "/")
    assert_harmless(page)
    assert [a["name"] for a in page.all("input", id="q")] == ["q"]
    assert "autofocus" in page.all("input", id="q")[0]
    assert [a["src"].startswith("/pictures/") for a in page.pictures] == [True] * 8
    assert "8 pictures · 3 sentences · model vse · re-ranked by camp" in page.text
    assert "Drawn & <made> here." in page.text


def test_results_are_those_of_the_api_in_their_order(web: TestClient) -> None:
    page = get(web, "/", q="a red dog")
    told = web.post("/api/search", json={"terms": [{"text": "a red dog"}]}).json()
    assert page.ids == [found["id"] for found in told["results"]]
    assert [a["alt"] for a in page.pictures] == [found["path"] for found in told["results"]]
    for found in told["results"]:
        assert f"{int(found['confidence'] * 100)} % sure" in page.text
        assert f"{found['score']:.3f}" in page.text
    assert_harmless(page)


def test_reranking_tells_how_far_each_result_moved(web: TestClient) -> None:
    before = get(web, "/", q="a red dog")
    page = get(web, "/", q="a red dog", rerank="1")
    assert sorted(before.ids) == sorted(page.ids)
    assert before.ids != page.ids
    moves = [before.ids.index(id) - place for place, id in enumerate(page.ids)]
    words = {m: f"moved {'up' if m > 0 else 'down'} {abs(m)} place{'s' * (abs(m) != 1)}" for m in moves}
    told = re.findall(r"moved (?:up|down) \d+ places?|stayed in its place", page.text)
    assert told == [words[m] if m else "stayed in its place" for m in moves]
    assert "moved" not in before.text
    assert all("model=reranker" in a["href"] for a in page.has("data-open"))


@pytest.mark.parametrize("name", ["q", "path", "where", "from", "term", "more", "kind", "top", "weight"])
def test_what_is_asked_never_becomes_markup(web: TestClient, name: str) -> None:
    given = {"q": "dog", "term": "s:cat", name: HOSTILE if name != "term" else f"s:{HOSTILE}"}
    for address in ("/", "/why"):
        page = Shown(web.get(address, params=given).text)
        assert_harmless(page)
        assert "{{7*7}}" in page.html or HOSTILE not in page.html


def test_what_is_found_never_becomes_markup(tmp_path: Path, vse_folder: str) -> None:
    folder = tmp_path / "pictures"
    tiny.fill(folder, 2)
    name = """<img src=x onerror=alert(1)> "&'.png"""
    picture(40, 30, seed=9).save(folder / name)
    (folder / "words.txt").write_text("<script>alert('dog')</script>\n")
    with Index.create(tmp_path / "index.db", vse_folder, device="cpu") as index:
        columns: dict[str, dict[str, str | float]] = {str(folder / name): {"<b>column</b>": "<script>x</script>"}}
        index.sync(folder, what="both", metadata=columns)
        with client(create_app(ServerSettings(token=TOKEN), index)) as web:
            page = get(web, "/", q="dog")
            assert_harmless(page)
            shown = next(a for a in page.pictures if a["alt"] == name)
            sentences = get(web, "/", q="dog", kind="sentence")
            assert_harmless(sentences)
            assert "<script>alert('dog')</script>" in sentences.text
            for a in page.has("data-open"):
                assert_harmless(get(web, a["href"]))
            assert "<script>x</script>" in get(web, page.has("data-open")[page.pictures.index(shown)]["href"]).text


def test_the_files_of_the_page_ask_nothing_of_anybody() -> None:
    names = {path.name for path in STATIC}
    assert {"page.css", "page.js", "logo.svg", "why.css", "why.js", "colours.css", "base.css"} <= names
    for path in STATIC:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(
            r"https?:|@import|url\(|\beval\(|(?:inner|outer)HTML\s*=[^=]|insertAdjacentHTML|document\.write", text
        ), path


def test_the_policy_forbids_what_is_inline(web: TestClient) -> None:
    policy = web.get("/").headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    for path in STATIC:
        assert web.get(f"/static/{path.name}").text == path.read_text()
    assert web.get("/static/why.html").status_code == 404  # templates are not served


def test_every_link_leads_somewhere(web: TestClient) -> None:
    page = get(web, "/", q="a dog", term=["s:snow"], weight=["-1"], where="album=holiday", path="album/*", top="3")
    links = {a["href"] for _, a in page.elements if "href" in a and a["href"].startswith("/")}
    assert len(links) > 10
    for link in links:
        assert web.get(link).status_code == 200, link


def test_more_results_are_a_link_until_there_are_none(web: TestClient) -> None:
    page = get(web, "/", q="a dog", top="3")
    assert len(page.ids) == 3
    assert page.all("a", id="load-more")[0]["href"] == "/?q=a+dog&top=27"
    assert page.all("a", id="load-more")[0]["data-more"] == "/?q=a+dog&top=48&after=3"
    assert not get(web, "/", q="a dog").all("a", id="load-more")


def test_pictures_that_are_not_seen_at_once_are_loaded_later(web: TestClient) -> None:
    lazy = [a.get("loading") == "lazy" for a in get(web, "/", q="a dog").pictures]
    assert lazy == [False] * 4 + [True] * 4


def test_a_list_goes_on_without_script_too(web: TestClient) -> None:
    first, second = get(web, "/", q="a dog", top="3"), get(web, "/", q="a dog", top="3", after="3")
    assert not set(first.ids) & set(second.ids)
    assert second.all("ol", id="found")[0]["start"] == "4"
    assert "Those before" in second.text
    assert "The list ends before this" in get(web, "/", q="a dog", after="500").text


@pytest.mark.parametrize(
    ("params", "said", "leads"),
    [
        ({"path": "elsewhere/*"}, "No picture passes this filter: “in elsewhere/*”.", ["/?q=dog"]),
        (
            {"path": "elsewhere/*", "where": "stars>3"},
            "No picture passes these 2 filters together",
            ["/?q=dog&where=stars%3E3", "/?q=dog"],
        ),
        ({"kind": "sentence", "where": "stars>3"}, "No sentence passes this filter", ["/?q=dog&kind=sentence"]),
    ],
)
def test_it_says_which_filters_leave_nothing(
    web: TestClient, params: dict[str, str], said: str, leads: list[str]
) -> None:
    page = get(web, "/", q="dog", **params)
    assert said in page.text
    assert [a["href"] for a in page.all("a") if a.get("class") == "second"] == leads


def test_it_says_that_confidence_hides_everything(
    app: FastAPI, web: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = answer([], False).model_copy(update={"left_out": 8, "best": 0.437})
    monkeypatch.setattr(app.state.service, "search", lambda _: hidden)
    page = get(web, "/", q="dog", sure="1")
    assert "Nothing matches well enough" in page.text
    assert "the nearest is 43\u00a0% sure" in page.text
    assert [a["href"] for a in page.all("a") if a.get("class") == "second"] == ["/?q=dog"]


def test_reranked_scores_are_explained(web: TestClient) -> None:
    page = get(web, "/", q="a red dog", rerank="1")
    assert "0 is the average of these results" in page.text
    assert len(re.findall(r"\d when searching, -?\d\.\d+ when compared again", page.text)) == 8
    assert "when searching" not in get(web, "/", q="a red dog").text


def test_a_picture_that_was_sent_is_searched_with(web: TestClient) -> None:
    response = web.post("/?path=album/*", files={"file": ("x.png", png(), "image/png")}, follow_redirects=False)
    assert response.status_code == 303
    page = get(web, response.headers["location"])
    assert page.pictures[1]["alt"] == "album/003.png"  # the picture itself, after that of its chip
    assert page.all("input", name="path")[0]["value"] == "album/*"
    assert page.all("input", name="term")[0]["value"].startswith("p:upload-")
    assert_harmless(page)


@pytest.mark.parametrize(
    ("data", "told"), [(b"", "There was no picture"), (b"no picture at all", "not a picture that can be read")]
)
def test_what_is_no_picture_is_told_so(web: TestClient, data: bytes, told: str) -> None:
    response = web.post("/?q=dog", files={"file": ("x.png", data, "image/png")})
    assert response.status_code == 422
    page = Shown(response.text)
    assert "That did not work" in page.text
    assert told.lower() in page.text.lower()
    assert page.all("input", id="q")[0]["value"] == "dog"


def test_a_picture_that_is_too_large_is_told_so(tmp_path: Path, vse_folder: str) -> None:
    with small_index(tmp_path, vse_folder, 2) as index:
        web = client(create_app(ServerSettings(token=TOKEN, max_pixels=100), index))
        response = web.post("/", files={"file": ("x.png", png(), "image/png")})
        assert response.status_code == 413
        assert "at most 100 are taken" in response.text


def test_a_form_without_a_file_is_told_so(web: TestClient) -> None:
    assert web.post("/", data={"file": "text"}).status_code == 422
    assert web.post("/").status_code == 422


def test_an_upload_that_is_gone_says_what_to_do(web: TestClient) -> None:
    page = get(web, "/", 404, term="p:upload-gone")
    assert "Give it again" in page.text


def test_filters_narrow_the_results_and_can_be_taken_off(web: TestClient) -> None:
    page = get(web, "/", q="dog", column="stars", op=">=", value="3")
    assert len(page.ids) == 2  # of 0 to 4 and 0 to 2
    chip = next(a for a in page.all("a") if a.get("aria-label") == "Remove the filter stars>=3")
    assert chip["href"] == "/?q=dog"
    assert [a["value"] for a in page.all("input", name="where")] == ["stars>=3"]
    assert not get(web, "/", q="dog", to="1980-01-01").ids
    assert "The filters leave nothing" in get(web, "/", q="dog", path="elsewhere/*").text
    assert len(get(web, "/?q=dog&from=2020-01-01").ids) == 8


@pytest.mark.parametrize("params", [{"where": "nonsense"}, {"from": "yesterday"}, {"q": "x" * 501}, {"weight": "x"}])
def test_bad_input_is_one_sentence_on_the_page(web: TestClient, params: dict[str, str]) -> None:
    page = get(web, f"/?{urlencode({'q': 'dog', 'term': 's:cat', **params})}", 422)
    alert = page.html.split('role="alert"')[1].split("</section>")[0]
    assert "That did not work" in alert
    assert_harmless(page)


def test_too_many_terms_are_told_so(web: TestClient) -> None:
    page = get(web, "/", 422, term=[f"s:dog {number}" for number in range(9)])
    assert "8 terms are the most" in page.text


def test_sentences_of_a_picture_are_found_and_explained(web: TestClient) -> None:
    id = get(web, "/", q="dog").ids[0]
    page = get(web, "/", term=f"p:{id}", kind="sentence")
    assert len(page.ids) == 3
    link = page.has("data-open")[0]["href"]
    asked = parse_qs(urlsplit(link).query)
    assert asked["id"] == [id]
    assert asked["sentence"][0] in ("two dog", "a red boat", "snow and grass")
    assert json.loads(get(web, link).has("data-explanation")[0]["data-explanation"])["words"]
    lines = get(web, "/", q="dog", kind="sentence")
    assert not lines.has("data-open")  # there is no picture to explain them with


@pytest.mark.parametrize("model", ["fast", "reranker"])
def test_an_explanation_has_words_regions_and_numbers(web: TestClient, model: str) -> None:
    id = get(web, "/", q="a red dog").ids[0]
    page = get(web, "/why", q="a red dog", id=id, sentence="a red dog", model=model)
    told = web.get("/api/explain", params={"id": id, "sentence": "a red dog", "model": model}).json()
    data = json.loads(page.has("data-explanation")[0]["data-explanation"])
    assert data["looks"] == told["looks"]
    assert data["whole"] == told["whole"]
    assert data["arrays"]["word_drop"] == told["arrays"]["word_drop"]
    rects = page.all("rect", role="button")
    assert sorted(int(a["data-region"]) for a in rects) == list(range(told["regions"]))
    assert [a["tabindex"] for a in rects].count("0") == 1
    assert f"{told['score']:.3f}" in page.text
    assert page.all("a", aria_current="true")[0]["href"].endswith(f"model={model}")
    assert_harmless(page)


def test_a_picture_without_a_sentence_asks_for_one(web: TestClient) -> None:
    id = get(web, "/", q="dog").ids[0]
    page = get(web, "/why", id=id)
    assert "Write a sentence" in page.text
    assert "album/" in page.text
    assert "holiday" in page.text  # its column
    assert not page.has("data-explanation")


def test_what_cannot_be_explained_says_why(web: TestClient) -> None:
    sentence = get(web, "/", q="dog", kind="sentence").ids[0]
    for id, status in (("nonsense", 404), (sentence, 404), ("upload-gone", 404), ("", 404)):
        page = get(web, "/why", status, id=id, sentence="dog")
        assert page.all("p", role="alert")
        assert not page.has("data-explanation")
    id = get(web, "/", q="dog").ids[0]
    assert "40 words are the most" in get(web, "/why", 422, id=id, sentence="dog " * 41).text
    assert get(web, "/why", 422, id=id, sentence="dog", model="best").all("p", role="alert")


def test_near_duplicates_are_one_result(tmp_path: Path, vse_folder: str) -> None:
    folder = tiny.fill(tmp_path / "pictures", 3)
    picture(40, 30, seed=0).save(folder / "again.png", compress_level=1)
    with Index.create(tmp_path / "index.db", vse_folder, device="cpu") as index:
        index.sync(folder)
        with client(create_app(ServerSettings(token=TOKEN), index)) as web:
            apart, together = get(web, "/", q="dog"), get(web, "/", q="dog", group="1")
            assert "nearly the same" not in apart.text
            assert "nearly the same" in together.text
            assert len(together.ids) < len(apart.ids)
            assert not together.all("input", id="rerank")  # this server has no model for it
            assert not together.all("input", name="kind")  # nor sentences
            assert get(web, "/", q="dog", rerank="1").ids == apart.ids


def test_an_empty_index_says_what_to_do(tmp_path: Path, vse_folder: str) -> None:
    with Index.create(tmp_path / "index.db", vse_folder, device="cpu") as index:
        web = client(create_app(ServerSettings(token=TOKEN), index))
        for address in ("/", "/?q=dog"):
            page = get(web, address)
            assert "The index is empty" in page.text
            assert "diptych index FOLDER" in page.text
            assert str(tmp_path) not in page.text


def test_sentences_alone_are_searched_without_asking(tmp_path: Path, vse_folder: str) -> None:
    with Index.create(tmp_path / "index.db", vse_folder, device="cpu") as index:
        index.add(sentences={"a": "two dog", "b": "a red boat"})
        page = get(client(create_app(ServerSettings(token=TOKEN), index)), "/", q="dog")
        assert len(page.ids) == 2
        assert page.all("input", name="kind", value="sentence", type="hidden")


def test_a_picture_without_a_file_has_a_place_holder(tmp_path: Path, vse_folder: str) -> None:
    with Index.create(tmp_path / "index.db", vse_folder, device="cpu") as index:
        index.add(pictures={"in memory": picture(40, 30, seed=1)})
        web = client(create_app(ServerSettings(token=TOKEN), index))
        page = get(web, "/", q="dog")
        assert len(page.ids) == 1
        assert not page.pictures
        assert "in memory, which cannot be shown" in page.text
        assert not get(web, "/").pictures
        assert "in memory" in get(web, "/why", id=page.ids[0]).text


def answer(confidences: list[float], matches: bool | None, exact: bool = True) -> SearchAnswer:
    results = [
        FoundEntry(
            id=f"id-{i}", path=f"a/{i}.png", score=1 - i / 10, confidence=c, kind="picture", text="", metadata={},
            retrieval=None, rerank=None, place_before=None, moved=None, duplicates=[], picture=None,
        )
        for i, c in enumerate(confidences)
    ]  # fmt: skip
    return SearchAnswer(
        results=results, timings={"total": 0.05}, matches=matches, exact=exact, more=False, left_out=0, best=None
    )


def test_what_does_not_match_is_shown_as_the_nearest(
    app: FastAPI, web: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = app.state.service
    monkeypatch.setattr(service, "search", lambda _: answer([0.95, 0.2], True))
    page = get(web, "/", q="dog")
    assert "Nothing here matches" not in page.text
    assert "2 pictures, best first · 0.05 s" in page.text
    monkeypatch.setattr(service, "search", lambda _: answer([0.899, 0.2], False, exact=False))
    page = get(web, "/", q="dog")
    assert "Nothing here matches." in page.text
    assert "89 % sure" in page.text  # never rounded up to what counts as a match
    assert "The nearest 2 pictures · approximate search · 0.05 s" in page.text
    assert page.all("ol", id="found")[0]["class"] == "grid dim"


def test_a_busy_server_says_so(app: FastAPI, web: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(_: object) -> SearchAnswer:
        raise Busy("too many requests are waiting", 3)

    monkeypatch.setattr(app.state.service, "search", busy)
    response = web.get("/?q=dog")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "3"
    assert "The server has much to do just now." in response.text


def test_the_page_is_not_in_the_openapi_document(web: TestClient) -> None:
    paths = web.get("/openapi.json").json()["paths"]
    assert "/" not in paths
    assert "/why" not in paths
