"""Whole reports of every kind of matcher, as a reader of the file would take them."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, sentences
from diptych.report import report as report_module
from diptych.report.report import Given, Report, make_report
from diptych.training.checkpoints import Position
from diptych.training.data import FilesConfig
from tests.evaluation import tiny
from tests.html_page import Page
from tests.matchers.cases import CASES
from tests.report import runs
from tests.web.chromium import FAINT_TEXT

COMMON = ["run", "training", "recall", "examples", "failures", "near-misses"]
SECTIONS = {
    "vse++": [*COMMON, "embedding"],
    "vse-infinity": [*COMMON, "pooling", "embedding"],
    "vse-infinity-features": [*COMMON, "pooling", "embedding"],
    "scan": [*COMMON, "embedding"],
    "camp": [*COMMON, "gates", "embedding"],
    "camp-without-gates": [*COMMON, "embedding"],
    "mmca": [*COMMON, "embedding"],
    "dive": [*COMMON, "embedding"],
}


@pytest.fixture(autouse=True)
def few_near_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "PAIRS", 12)


def check(report: Report) -> Page:
    """What holds for every report: nothing from outside, ids once, links that lead somewhere, charts with words."""
    plain = re.sub(r"base64,[\w+/=]+", "", report.html)
    assert not re.search(r"https?:|//\w|url\(|@import|<link|<script|<iframe|javascript:", plain)
    page = Page(report.html)
    for tag, attributes in page.elements:
        for name in ("src", "href"):
            if name in attributes:
                assert attributes[name].startswith(("data:image/", "#")), (tag, attributes[name][:40])
        assert not any(name.startswith("on") for name in attributes)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for a in page.all("a")} <= set(ids)
    charts = [svg for svg in page.all("svg") if svg.get("role") == "img"]
    assert all(set(svg["aria-labelledby"].split()) <= set(ids) for svg in charts)
    assert all("alt" in image for image in page.all("img"))
    return page


@pytest.mark.parametrize("kind", SECTIONS)
def test_each_kind_of_matcher_has_its_own_sections(kind: str, tmp_path: Path) -> None:
    report = make_report(runs.scenes_run(tmp_path / "run", kind))
    assert list(report.sections) == SECTIONS[kind]
    assert report.notes == ()
    page = check(report)
    assert (report.pictures, report.sentences, report.whole) == (9, 45, 9)
    assert "Looked at on all 9 pictures of the test split." in page.text
    assert f"{report.figures['rsum']:.1f}" in page.text
    assert len(list(page.all("img"))) >= 30
    assert ("Gates of regions" in page.text) == ("gates" in report.sections)
    assert ("Weights of the ranks, sentences" in page.text) == ("pooling" in report.sections)


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = runs.scenes_run(tmp_path / "run", "dive")
    first = make_report(run).html
    make_report(run).write(run / "report.html")
    assert (run / "report.html").read_text(encoding="utf-8") == first == make_report(run).html
    assert make_report(run, seed=1).html != first
    assert str(tmp_path) not in first


HOSTILE = [
    "</style></title><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)> & <b>",
    "<!-- `a` &amp; http: //evil",
    "javascript:alert(1) </td></table>",
]


def test_hostile_sentences_and_names_stay_text(tmp_path: Path) -> None:
    whole = tiny.collection(8)
    items = [replace(item, id=f"<i>{i}</i>", sentences=sentences(HOSTILE, "x")) for i, item in enumerate(whole.items)]
    told = runs.recipe(CASES["dive"], FilesConfig(path="nowhere"), name="<script>alert(2)</script>")
    run = runs.write_run(tmp_path / "run", told, HOSTILE)
    report = make_report(run, Given(replace(whole, items=items), "<u>"))
    page = Page(report.html)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "i", "b", "u"}
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert all(hostile in page.text for hostile in HOSTILE)
    assert all(image["src"].startswith("data:") for image in page.all("img"))
    assert "<script>alert(2)</script>" in page.text


def test_without_pictures_their_names_and_sentences_stand_in(tmp_path: Path) -> None:
    collection = tiny.collection(9)
    run = runs.write_run(tmp_path / "run", runs.recipe(CASES["camp"], FilesConfig(path="nowhere")), tiny.WORDS)
    report = make_report(run, Given(collection, "test"))
    page = check(report)
    assert "near-misses" not in report.sections
    assert not list(page.all("img"))
    assert "picture p3" in page.text
    blanks = re.findall(r'<div class="blank">picture (p\d)<br>“(.*?)”</div>', report.html)
    firsts = {item.id: item.sentences[0].text for item in collection.items}
    assert blanks
    assert all(firsts[name] == text for name, text in blanks)


def test_a_picture_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    def broken() -> object:
        raise DiptychError("not a picture of a known format", where=tmp_path / "x.jpg")

    whole = tiny.collection(8)
    items = [replace(item, open=broken) for item in whole.items]  # type: ignore[arg-type]
    run = runs.write_run(tmp_path / "run", runs.recipe(CASES["vse++"], FilesConfig(path="nowhere")), tiny.WORDS)
    html = make_report(run, Given(replace(whole, items=items), "test")).html
    assert "(not a picture of a known format)" in html
    assert str(tmp_path) not in html


def test_the_right_ones_are_marked_by_colour_sign_and_word(tmp_path: Path) -> None:
    collection = tiny.collection(9)
    run = runs.write_run(tmp_path / "run", runs.recipe(CASES["vse++"], FilesConfig(path="nowhere")), tiny.WORDS)
    html = make_report(run, Given(collection, "test")).html
    captions, owners = collection.captions()
    examples = html[html.index('id="examples-h"') : html.index('id="failures-h"')]
    queries = re.findall(r'data-query="t2i-(\d+)">(.*?)</ol>', examples, re.S)
    assert len(queries) == 6
    for position, body in queries:
        tiles = re.findall(
            r'<li class="tile (\w+)">.*?picture (p\d).*?aria-hidden="true">(.)</span> (.*?)</span>', body
        )
        assert len(tiles) == 5
        for kind, name, sign, word in tiles:
            right = name == f"p{owners[int(position)]}"
            assert (kind, sign, word) == (("right", "✓", "right") if right else ("wrong", "✗", "wrong"))
    for position, body in re.findall(r'data-query="i2t-(\d+)">(.*?)</ol>', examples, re.S):
        own = {text for text, owner in zip(captions, owners, strict=True) if owner == int(position)}
        lines = re.findall(
            r'<li class="(\w+)"><span class="sign" aria-hidden="true">(.)</span>.*?: </span>(.*?)</span>', body
        )
        assert len(lines) == 5
        for kind, sign, text in lines:
            assert (kind, sign) in (("right", "✓"), ("wrong", "✗"))
            assert kind == "wrong" or text in own


def test_a_failure_shows_its_right_answer_last_with_its_rank(tmp_path: Path) -> None:
    collection = tiny.collection(9)
    run = runs.write_run(tmp_path / "run", runs.recipe(CASES["vse++"], FilesConfig(path="nowhere")), tiny.WORDS)
    html = make_report(run, Given(collection, "test")).html
    captions, owners = collection.captions()
    failures = html[html.index('id="failures-h"') :]
    queries = re.findall(r'data-query="t2i-(\d+)">.*?came at rank ([\d.]+)<(.*?)</ol>', failures, re.S)
    assert queries
    for position, rank, body in queries:
        last = body[body.rindex("<li") :]
        assert f"picture p{owners[int(position)]}" in last
        assert f'aria-hidden="true">✓</span> rank {rank}</span>' in last
    queries = re.findall(r'data-query="i2t-(\d+)">.*?came at rank ([\d.]+)<(.*?)</ol>', failures, re.S)
    assert queries
    for position, rank, body in queries:
        found = re.search(r'<span class="sr">right: </span>rank ([\d.]+): (.*?)</span>', body[body.rindex("<li") :])
        assert found is not None
        assert found[1] == rank
        assert found[2] in {text for text, owner in zip(captions, owners, strict=True) if owner == int(position)}


def test_a_part_of_the_data_is_said_to_be_one(tmp_path: Path) -> None:
    report = make_report(runs.scenes_run(tmp_path / "run", "vse++"), pictures=5)
    assert (report.pictures, report.whole) == (5, 9)
    assert "drawn from its 9 with seed 0" in report.html
    assert "5 pictures (drawn from the 9 of the split)" in report.html


def test_missing_data_leaves_the_rest(tmp_path: Path) -> None:
    run = runs.write_run(tmp_path / "run", runs.recipe(CASES["vse++"], FilesConfig(path="gone.json")), tiny.WORDS)
    report = make_report(run)
    assert list(report.sections) == ["run", "training", "recall"]
    assert report.notes == ("Left out: all that needs the data. The reason: gone.json: no such file or folder.",)
    assert report.notes[0] in Page(report.html).text
    check(report)


def test_an_unfinished_run_and_one_without_a_model(tmp_path: Path) -> None:
    run = runs.write_run(tmp_path / "run", runs.recipe(runs.KINDS["vse++"]), ["a red dog"], Position(1, 4, 14, 5.0, 0))
    shutil.rmtree(run / "best")
    report = make_report(run)
    assert "unfinished: 1 of 3 epochs and 4 steps of the next" in report.notes[0]
    assert any("its last checkpoint, not its best" in note for note in report.notes)
    assert "unfinished run" in report.html
    shutil.rmtree(run / "last")
    report = make_report(run)
    assert list(report.sections) == ["run", "training", "recall"]
    assert any("no checkpoint yet" in note for note in report.notes)
    check(report)


def test_one_picture_is_enough(tmp_path: Path) -> None:
    item = Item("one", sentences(["a dog", "the dog"], "one"), "test", row=0)
    run = runs.write_run(tmp_path / "run", runs.recipe(CASES["camp"], FilesConfig(path="nowhere")), tiny.WORDS)
    report = make_report(run, Given(Collection("one", [item], tiny.collection(1).features), "test"))
    assert "gates" in report.sections
    assert "every right answer came first" in report.html
    assert any("too few for a map" in note for note in report.notes)


def test_wrong_wishes_are_refused(tmp_path: Path) -> None:
    run = runs.scenes_run(tmp_path / "run", "vse++")
    with pytest.raises(DiptychError, match="did you mean 'test'"):
        make_report(run, Given(split="tests"))
    with pytest.raises(DiptychError, match="cannot be used"):
        make_report(run, device="toaster")
    with pytest.raises(DiptychError, match="cannot be written"):
        make_report(run).write(run / "recipe.json" / "report.html")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed: the page is not opened")
def test_a_browser_opens_it_without_complaint(tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: the page is not opened")
    path = tmp_path / "report.html"
    make_report(runs.scenes_run(tmp_path / "run", "camp")).write(path)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            for width, scheme in ((1280, "light"), (390, "dark")):
                context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
                page = context.new_page()
                told: list[str] = []
                asked: list[str] = []
                page.on("console", lambda message, told=told: told.append(message.text))
                page.on("pageerror", lambda error, told=told: told.append(str(error)))
                page.on("request", lambda request, asked=asked: asked.append(request.url))
                page.goto(path.as_uri())
                assert told == []
                assert all(url.startswith("data:") or url == path.as_uri() for url in asked)
                assert page.evaluate("document.documentElement.scrollWidth") == width
                assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
                paper = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
                assert max(paper) < 50 if scheme == "dark" else min(paper) > 230
                assert page.evaluate(FAINT_TEXT) == []
                page.emulate_media(media="print")
                assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
                context.close()
        finally:
            browser.close()
