"""The page in a real Chromium: what people do with it, by pointer, by keys, on a phone, in the dark, without script."""

import base64
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from diptych.web.settings import ServerSettings
from tests.encoders.pictures import picture
from tests.web.chromium import FAINT_TEXT, FAULTS, NO_RING, chromium
from tests.web.models import camp_folder, own_folders, vse_folder
from tests.web.serving import TOKEN, serving, small_index

__all__ = ["camp_folder", "own_folders", "vse_folder"]  # fixtures

DESK, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 780}
# A file of the page itself: `file(type)`.
FILE = """const bytes = Uint8Array.from(atob(data), c => c.charCodeAt(0));
const transfer = new DataTransfer();
transfer.items.add(new File([bytes], 'given.png', { type: kind }));"""
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def server(browser: Any, server_folder: Path, vse_folder: str, camp_folder: str) -> Iterator[str]:
    with (
        small_index(server_folder, vse_folder, 9) as index,
        serving(index, ServerSettings(token=TOKEN, rerank=camp_folder, credits="Drawn here.")) as address,
    ):
        yield address


@pytest.fixture
def open_page(browser: Any, server: str) -> Iterator[Open]:
    """Opens pages; in the end none of them had an error, nor asked anything of another server."""
    contexts, errors, outside = [], list[str](), list[str]()

    def opened(address: str = "/", viewport: dict[str, int] = DESK, **options: Any) -> Any:
        context = browser.new_context(viewport=viewport, base_url=server, **{"reduced_motion": "reduce", **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith((server, "data:")) else outside.append(asked.url))
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not errors
    assert not outside


def ids(page: Any) -> list[str]:
    found: list[str] = page.eval_on_selector_all("#found > li", "cards => cards.map(card => card.dataset.id)")
    return found


def search(page: Any, text: str) -> None:
    page.fill("#q", text)
    page.press("#q", "Enter")
    page.wait_for_function(
        "text => new URLSearchParams(location.search).get('q') === text && !document.querySelector('.busy')", arg=text
    )


def settled(page: Any, condition: str) -> None:
    page.wait_for_function(f"() => !document.querySelector('.busy') && ({condition})")


def look(page: Any, place: int = 0) -> None:
    page.locator("#found .open").nth(place).click()
    page.wait_for_selector("#viewer-stage img")


def explain(page: Any, place: int = 0) -> None:
    look(page, place)
    page.click("#viewer [data-do=why]")
    page.wait_for_selector("#viewer .words button")


def address_of(page: Any) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def png(seed: int = 3) -> bytes:
    data = io.BytesIO()
    picture(40, 30, seed=seed).save(data, "png")
    return data.getvalue()


def test_type_and_search_and_go_back(open_page: Open) -> None:
    page = open_page()
    assert page.evaluate("document.activeElement.id") == "q"
    assert not page.is_visible(".tools")
    search(page, "a red dog")
    first = ids(page)
    assert len(first) == 9
    assert re.search(r" · (\d+\.\d\d s|at once)$", page.inner_text("[role=status]"))
    assert "9 pictures" in page.inner_text("[role=status]")
    assert page.is_visible(".tools")
    assert page.title() == "a red dog · Diptych"
    search(page, "three small boat")
    second = ids(page)
    page.go_back()
    settled(page, "document.title.startsWith('a red dog')")
    assert ids(page) == first
    assert page.input_value("#q") == "a red dog"
    page.go_forward()
    settled(page, "document.title.startsWith('three')")
    assert ids(page) == second
    page.reload()
    assert ids(page) == second  # the address holds it all
    page.go_back()
    page.go_back()
    settled(page, "document.body.className === 'home'")
    assert page.input_value("#q") == ""
    assert page.is_visible(".sample")


@pytest.mark.parametrize("way", ["paste", "drop", "choose"])
def test_a_picture_is_given(open_page: Open, way: str) -> None:
    page = open_page("/?q=dog&path=album/*")
    data = base64.b64encode(png()).decode()
    if way == "choose":
        page.set_input_files("#file", {"name": "given.png", "mimeType": "image/png", "buffer": png()})
    elif way == "paste":
        page.evaluate(
            f"([data, kind]) => {{ {FILE} document.querySelector('#q').dispatchEvent("
            "new ClipboardEvent('paste', { clipboardData: transfer, bubbles: true, cancelable: true })); }",
            [data, "image/png"],
        )
    else:
        drag = f"([data, kind, type]) => {{ {FILE} document.body.dispatchEvent(new DragEvent(type, {{ dataTransfer: transfer, bubbles: true, cancelable: true }})); }}"  # fmt: skip # noqa: E501
        page.evaluate(drag, [data, "image/png", "dragenter"])
        assert page.is_visible(".drop")
        page.evaluate(drag, [data, "image/png", "drop"])
        assert not page.is_visible(".drop")
    page.wait_for_selector(".chip.plus img")
    settled(page, "document.querySelector('.chip img').naturalWidth > 0")
    assert address_of(page)["term"][0].startswith("p:upload-")
    assert address_of(page)["path"] == ["album/*"]  # filters stay
    assert page.input_value("#q") == ""
    assert page.locator("#found img").first.get_attribute("alt") == "album/003.png"
    assert page.is_disabled("#rerank")  # it compares pictures with sentences


def test_what_is_no_picture_is_refused(open_page: Open) -> None:
    page = open_page("/?q=dog")
    page.evaluate(
        f"([data, kind]) => {{ {FILE} document.body.dispatchEvent("
        "new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true })); }",
        [base64.b64encode(b"text").decode(), "text/plain"],
    )
    assert page.inner_text("[role=status]") == "given.png is not a picture."


def test_reranking_shows_what_moved(open_page: Open) -> None:
    page = open_page("/?q=a+red+dog")
    before = ids(page)
    page.click("label[for=rerank]")
    settled(page, "document.querySelector('.move')")
    after = ids(page)
    assert after != before
    assert address_of(page)["rerank"] == ["1"]
    shown = page.locator("#found > li .move").all_inner_texts()
    for place, (id, text) in enumerate(zip(after, shown, strict=True)):
        moved = before.index(id) - place
        assert text.split()[0] == (str(abs(moved)) if moved else "=")
        kind = "up" if moved > 0 else "down" if moved < 0 else "same"
        assert page.locator("#found > li").nth(place).locator(f".move.{kind}").count() == 1
    assert page.evaluate("document.activeElement.id") in ("rerank", "q")
    page.click("label[for=rerank]")
    settled(page, "!document.querySelector('.move')")
    assert ids(page) == before


def test_results_glide_only_for_those_who_like_movement(open_page: Open) -> None:
    for liked, count in (("no-preference", 1), ("reduce", 0)):
        page = open_page("/?q=a+red+dog", reduced_motion=liked)
        page.evaluate(
            "() => { window.moved = 0; const old = Element.prototype.animate;"
            "Element.prototype.animate = function (...a) { window.moved++; return old.apply(this, a); }; }"
        )
        page.click("label[for=rerank]")
        settled(page, "document.querySelector('.move')")
        assert min(1, page.evaluate("window.moved")) == count


@pytest.mark.parametrize("model", ["Searching model", "Re-ranking model"])
def test_words_show_where_they_look_and_regions_which_words(open_page: Open, model: str) -> None:
    page = open_page("/?q=a+red+dog+sits")
    explain(page)
    if model == "Re-ranking model":
        page.click(f"#viewer a:text-is('{model}')")
        settled(page, "document.querySelector('#viewer .models [aria-current]')?.textContent.startsWith('Re-ranking')")
    assert page.locator("#viewer .models [aria-current]").inner_text() == model
    words, regions = page.locator(".words button"), page.locator(".stage [data-region]")
    assert words.all_inner_texts() == ["a", "red", "dog", "sits"]
    state = """() => ({
      map: [...document.querySelectorAll('[data-region]')].map(r => r.dataset.strength).join(),
      words: [...document.querySelectorAll('.words button')].map(w => w.style.background).join(),
      drawn: document.querySelector('.stage canvas')?.toDataURL() || '',
      note: document.querySelector('#why-now').textContent })"""
    rest = page.evaluate(state)
    assert rest["note"].startswith("Bright is what the score would miss")  # of this sentence, not of any
    words.nth(2).click()
    word = page.evaluate(state)
    assert word["note"].startswith("“dog”")
    assert word["map"] != rest["map"]
    assert word["drawn"] != rest["drawn"]
    regions.last.hover()
    words.nth(1).hover()
    assert page.evaluate(state) == word  # what was chosen stays while the pointer goes elsewhere
    assert page.get_attribute("button[data-rest]", "aria-pressed") == "false"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(state)["note"].startswith("“sits”")
    page.keyboard.press("Home")
    assert page.evaluate(state)["note"].startswith("“a”")
    assert page.locator(".words [aria-pressed=true]").inner_text() == "a"
    page.click("button[data-rest]")
    page.hover("#why-title")
    assert page.evaluate(state) == rest
    regions.last.click()
    region = page.evaluate(state)
    assert "has most to do with" in region["note"]
    assert region["words"] != rest["words"]
    page.locator(".stage [tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(state)["note"] != region["note"]
    assert page.locator(".stage rect.on").count() == 1
    assert "column" not in page.inner_text("#viewer") + page.evaluate(state)["note"]
    page.keyboard.press("Escape")  # lets go of the part, and leaves the rest open
    assert page.is_visible("#viewer")
    page.hover("#why-title")
    assert page.evaluate(state) == rest


def test_the_map_can_be_taken_off_the_picture_and_stays_off(open_page: Open) -> None:
    page = open_page("/?q=a+red+dog")
    explain(page)
    assert page.is_visible(".stage canvas")
    page.click("[data-overlay]")
    assert not page.is_visible(".stage canvas")
    assert page.is_visible(".stage img")
    page.click("#viewer [data-do=next]")
    settled(page, "document.querySelector('#viewer .words button') && document.querySelector('#why.bare')")
    page.click("[data-overlay]")
    assert page.is_visible(".stage canvas")


def test_another_sentence_is_explained_and_the_dialog_closes_by_going_back(open_page: Open) -> None:
    page = open_page("/?q=a+red+dog")
    explain(page, 2)
    assert urlsplit(page.url).path == "/why"
    page.fill("#sentence", "blue boat")
    page.press("#sentence", "Enter")
    settled(page, "document.querySelectorAll('.words button').length === 2")
    assert address_of(page)["sentence"] == ["blue boat"]
    page.keyboard.press("Escape")
    page.wait_for_selector("#viewer", state="hidden")
    assert urlsplit(page.url).path == "/"
    assert page.evaluate("document.activeElement.closest('li').dataset.id") == ids(page)[2]
    page.go_forward()
    page.wait_for_selector("#viewer .words button")
    page.reload()
    assert page.locator("main > #why .words button").count() == 2  # a page of its own
    page.locator(".words button").first.click()
    assert page.inner_text("#why-now").startswith("“blue”")
    page.go_back()
    page.wait_for_selector("#found")


def test_a_picture_leads_on(open_page: Open) -> None:
    page = open_page("/?q=a+red+dog")
    id = ids(page)[1]
    explain(page, 1)
    page.click("text=Sentences for this picture")
    settled(page, "document.querySelector('.lines')")
    assert len(ids(page)) == 3
    assert address_of(page) == {"term": [f"p:{id}"], "weight": ["1"], "kind": ["sentence"]}
    page.locator(".line .open").first.click()
    page.wait_for_selector("#viewer .words button")
    page.click("#viewer .ways >> text=More like this")
    settled(page, "document.querySelector('.grid')")
    assert ids(page)[0] == id  # nothing is more like it than itself
    assert not page.is_visible("#viewer")
    look(page)
    page.click("#viewer [data-do=why]")
    page.wait_for_selector("#viewer #sentence")  # there is no sentence yet
    page.fill("#sentence", "a dog")
    page.press("#sentence", "Enter")
    page.wait_for_selector("#viewer .words button")


def test_terms_with_plus_and_minus(open_page: Open) -> None:
    page = open_page("/?q=a+red+dog")
    plain = ids(page)
    page.fill("#more", "snow")
    page.click("[aria-label='Take the term away: less of it']")
    page.wait_for_selector(".chip.minus")
    assert page.inner_text(".chip.minus .text") == "snow"
    assert page.input_value("#more") == ""
    assert address_of(page) == {"q": ["a red dog"], "term": ["s:snow"], "weight": ["-1"]}
    last = page.locator("#found .card").last
    last.hover()
    last.locator("[title='Add it to the search']").click()
    page.wait_for_selector(".chip.plus img")
    assert address_of(page)["weight"] == ["-1", "1"]
    assert ids(page) != plain
    page.select_option(".chip.plus select", "2")
    settled(page, "location.search.includes('weight=2')")
    page.click("[aria-label='Remove “snow”']")
    settled(page, "!document.querySelector('.chip.minus')")
    page.click("[aria-label='Remove the picture']")
    settled(page, "!document.querySelector('.chip')")
    assert ids(page) == plain
    for _ in range(2):  # the same again does not double them
        page.fill("#q", "boat + dog - 2:snow")
        page.press("#q", "Enter")
        settled(page, "document.querySelector('.chip.minus') && document.querySelector('#q').value === ''")
        assert page.locator(".chip .text").all_inner_texts() == ["boat", "dog", "snow"]
    page.press("#q", "Enter")
    settled(page, "true")
    assert page.locator(".chip .text").all_inner_texts() == ["boat", "dog", "snow"]
    page.click("text=Start again")
    settled(page, "!document.querySelector('.chip')")


def test_filters(open_page: Open) -> None:
    page = open_page("/?q=dog")
    page.click("#filters summary")
    page.select_option("#column", "stars")
    page.select_option("#op", ">=")
    page.fill("#value", "3")
    page.click("text=Apply")
    page.wait_for_selector(".chip.filter")
    assert address_of(page)["where"] == ["stars>=3"]
    assert len(ids(page)) == 3
    assert page.is_visible("#path")  # the panel stays open
    page.fill("#path", "album/004*")
    page.press("#path", "Enter")
    settled(page, "document.querySelectorAll('.chip.filter').length === 2")
    assert page.locator("#found img").get_attribute("alt") == "album/004.png"
    page.click("text=Clear all")
    settled(page, "!document.querySelector('.chip.filter')")
    assert len(ids(page)) == 9
    page.fill("#to", "1999-12-31")
    page.click("text=Apply")
    page.wait_for_selector("text=The filters leave nothing")
    assert page.inner_text(".chip.filter .text") == "to 1999-12-31"
    page.click("text=Search without filters")
    settled(page, "document.querySelectorAll('#found > li').length === 9")
    page.click("label[for=group]")
    settled(page, "location.search.includes('group=1')")


def test_more_results_and_kinds(open_page: Open) -> None:
    page = open_page("/?q=dog&top=4")
    assert len(ids(page)) == 4
    first = ids(page)
    page.click("#load-more")
    settled(page, "document.querySelectorAll('#found > li').length === 9")
    assert ids(page)[:4] == first
    assert len(set(ids(page))) == 9
    page.wait_for_function("id => document.activeElement.closest('li')?.dataset.id === id", arg=ids(page)[4])
    assert address_of(page)["top"] == ["9"]  # the address holds them all
    page.click("label[for=kind-sentence]")
    settled(page, "document.querySelector('.lines')")
    page.click("label[for=kind-picture]")
    settled(page, "document.querySelector('.grid')")


def test_keys_alone(open_page: Open) -> None:
    page = open_page("/?q=dog")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("a red dog/")  # a slash in the box is a slash
    assert page.input_value("#q") == "a red dog/"
    page.keyboard.press("Enter")
    settled(page, "document.title.startsWith('a red dog/')")
    assert page.evaluate("document.activeElement.id") == "q"
    place = "[...document.querySelectorAll('#found .open')].indexOf(document.activeElement)"
    columns = page.evaluate("getComputedStyle(document.querySelector('#found')).gridTemplateColumns.split(' ').length")
    moves = [("ArrowDown", 0), ("ArrowRight", 1), ("ArrowDown", 1 + columns), ("ArrowLeft", columns), ("ArrowUp", 0)]
    for key, expected in [*moves, ("End", 8), ("ArrowRight", 8), ("Home", 0), ("ArrowRight", 1)]:
        page.keyboard.press(key)
        assert page.evaluate(place) == expected, key
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.title") == "Choose it"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.title") == "More like this"
    assert page.evaluate(
        "document.activeElement.closest('.card').querySelector('.acts').checkVisibility({ opacityProperty: true })"
    )
    page.keyboard.press("Shift+Tab")  # its box
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#viewer-stage img")
    assert page.inner_text("#viewer-place").startswith("2 of 9")
    for key, expected in (("Right", 3), ("Left", 2), ("Left", 1), ("Left", 1)):
        page.keyboard.press(f"Arrow{key}")
        assert page.inner_text("#viewer-place").startswith(f"{expected} of 9")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.do === 'why'"):
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("#viewer .words button")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.words button')"):
            break
    page.keyboard.press("Enter")
    assert page.inner_text("#why-now").startswith("“a”")
    page.keyboard.press("/")  # not while the dialog is open
    assert page.evaluate("document.activeElement.matches('.words button')")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.wait_for_selector("#viewer", state="hidden")
    assert page.evaluate(place) == 0  # where the pictures were left


def test_one_stop_for_tab_among_the_results(open_page: Open) -> None:
    page = open_page("/?q=dog")
    stops = "[...document.querySelectorAll('#found :is(a, input)')].filter(a => a.tabIndex === 0).length"
    assert page.evaluate(stops) == 5  # those of the first card


def test_whatever_has_the_focus_shows_it(open_page: Open) -> None:
    page = open_page("/?q=dog&term=s:snow&weight=-1")
    page.click("#filters summary")
    page.focus(".skip")
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        element = page.evaluate_handle("document.activeElement")
        if element.evaluate("e => e === document.body"):
            break
        seen.append(element.evaluate("e => e.id || e.outerHTML.slice(0, 80)"))
        assert not element.evaluate(NO_RING), seen[-1]
    assert {"q", "file", "more", "rerank", "weight-1", "path"} <= set(seen)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_names_contrast_and_width(open_page: Open, scheme: str, viewport: dict[str, int]) -> None:
    page = open_page("/", viewport, color_scheme=scheme, has_touch=viewport is PHONE)
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert max(paper) < 50 if scheme == "dark" else min(paper) > 230

    def check() -> None:
        assert page.evaluate(FAULTS) == []
        assert page.evaluate(FAINT_TEXT) == []
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]

    check()
    page.goto("/?q=a+red+dog+sits&term=s:snow&weight=-1&rerank=1&where=stars%3C5&path=*&group=1")
    page.click("#filters summary")
    check()
    page.locator(".tick input").first.check()
    check()
    look(page)
    check()
    page.click("#viewer [data-do=why]")
    page.wait_for_selector("#viewer .words button")
    check()
    for part in ("#viewer", "#viewer-why"):
        assert page.evaluate(f"(e => e.scrollWidth <= e.clientWidth)(document.querySelector('{part}'))")
    page.click("#viewer .figures summary")
    page.click("#viewer .facts summary")
    check()
    page.reload()  # the explanation as a page of its own
    check()
    page.goto("/?q=dog&kind=sentence")
    check()
    page.goto("/?q=dog&path=nowhere&where=stars%3C9")
    check()
    page.goto("/?q=dog&sure=1")
    check()


def test_what_stands_in_a_path_stays_within_a_phone(open_page: Open) -> None:
    page = open_page("/?q=" + "dog" * 60 + "&term=s:" + "snow" * 40 + "&weight=-1", PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("how", ["off", "fails"])
def test_without_script_plain_search_works(browser: Any, server: str, how: str) -> None:
    context = browser.new_context(viewport=DESK, base_url=server, java_script_enabled=how != "off")
    if how == "fails":
        context.route("**/*.js", lambda route: route.abort())
    page = context.new_page()
    page.goto("/")
    page.fill("#q", "a red dog")
    page.press("#q", "Enter")
    page.wait_for_selector("#found")
    before = ids_plainly(page)
    assert len(before) == 9
    page.check("#rerank")
    page.click("text=Search again")
    page.wait_for_selector(".move")
    assert ids_plainly(page) != before
    page.click("#filters summary")
    page.fill("#path", "album/002*")
    page.click("text=Apply")
    page.wait_for_selector(".chip.filter")
    assert len(ids_plainly(page)) == 1
    page.locator("#found .open").click()
    page.wait_for_selector(".figures table")
    assert page.locator("tbody th").all_inner_texts() == ["a", "red", "dog"]
    page.goto("/?q=a+red+dog")
    page.locator(".tick input").nth(1).check()
    page.locator(".tick input").nth(2).check()
    with page.expect_download() as download:
        page.click("text=Download as zip")
    with zipfile.ZipFile(download.value.path()) as archive:
        assert len(archive.namelist()) == 2
    page.goto("/")
    page.set_input_files("#file", {"name": "given.png", "mimeType": "image/png", "buffer": png()})
    page.click("button:text-is('Search with it')")
    page.wait_for_selector(".chip.plus")
    assert page.locator("#found img").first.get_attribute("alt") == "album/003.png"
    context.close()


def ids_plainly(page: Any) -> list[str]:
    return [card.get_attribute("data-id") for card in page.locator("#found > li").all()]


def test_a_server_that_is_gone_is_told_of(browser: Any, server: str) -> None:
    context = browser.new_context(viewport=DESK, base_url=server)
    page = context.new_page()
    page.goto("/?q=dog")
    page.route("**/*", lambda route: route.abort())
    page.fill("#q", "boat")
    page.press("#q", "Enter")
    page.wait_for_function("() => document.querySelector('[role=status]').textContent.includes('does not answer')")
    assert len(ids(page)) == 9  # what was found is still there
    context.close()


def test_an_error_of_the_server_is_told(browser: Any, server: str) -> None:
    context = browser.new_context(viewport=DESK, base_url=server)
    page = context.new_page()
    page.goto("/?q=dog")
    page.fill("#q", "- boat")
    page.press("#q", "Enter")
    page.wait_for_selector("[role=alert]")
    assert "There is nothing to look for" in page.inner_text("[role=alert]")
    context.close()


def test_print(open_page: Open) -> None:
    page = open_page("/?q=dog")
    page.emulate_media(media="print")
    assert not page.is_visible(".tools")
    assert not page.is_visible(".acts >> nth=0")
    assert page.is_visible("#found img >> nth=0")
    assert page.pdf().startswith(b"%PDF")


def test_one_after_another_in_a_large_picture(open_page: Open) -> None:
    page = open_page("/?q=a+red+dog")
    look(page, 1)
    assert address_of(page) == {"q": ["a red dog"], "show": [ids(page)[1]]}
    page.click("#viewer [data-do=next]")
    assert address_of(page)["show"] == [ids(page)[2]]
    settled(page, "document.querySelector('#viewer-stage img').src.includes('size=1280')")
    assert page.locator("#viewer-stage img").get_attribute("alt") == page.inner_text("#viewer-name").replace("\n", "")
    page.reload()  # the link leads to the same picture
    page.wait_for_selector("#viewer-stage img")
    assert page.inner_text("#viewer-place").startswith("3 of 9")
    page.go_back()
    page.wait_for_selector("#viewer", state="hidden")
    assert address_of(page) == {"q": ["a red dog"]}
    look(page, 8)
    assert page.is_disabled("#viewer [data-do=next]")
    page.click("#viewer [data-do=why]")
    page.wait_for_selector("#viewer .words button")
    page.click("#viewer [data-do=why]")
    assert page.is_visible("#viewer-stage img")


def test_a_large_picture_brings_more_results_at_the_end_of_those_there(open_page: Open) -> None:
    page = open_page("/?q=a+red+dog&top=4")
    look(page, 3)
    page.click("#viewer [data-do=next]")
    page.wait_for_function("() => document.querySelector('#viewer-place').textContent.startsWith('5 of 9')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#viewer", state="hidden")
    assert len(ids(page)) == 9
    assert page.evaluate("document.activeElement.closest('li').dataset.id") == ids(page)[4]


def test_a_picture_is_made_larger_and_moved(open_page: Open) -> None:
    page = open_page("/?q=a+red+dog")
    look(page)
    shape = "document.querySelector('#viewer-stage img').style.transform"
    page.click("#viewer [data-do=larger]")
    assert "scale(1.5)" in page.evaluate(shape)
    page.keyboard.press("+")
    assert "scale(2.25)" in page.evaluate(shape)
    before = page.evaluate(shape)
    page.mouse.move(600, 400)
    page.mouse.down()
    page.mouse.move(660, 430)
    page.mouse.up()
    assert page.evaluate(shape) != before
    assert page.inner_text("#viewer-place").startswith("1 of 9")  # dragging a large one turns to no other
    page.keyboard.press("0")
    assert page.evaluate(shape) == ""
    page.mouse.dblclick(600, 400)
    assert "scale(2.5)" in page.evaluate(shape)
    page.mouse.wheel(0, 2000)
    page.wait_for_function(f"() => {shape} === ''")


def test_a_swipe_turns_to_the_next(open_page: Open) -> None:
    page = open_page("/?q=a+red+dog", PHONE, has_touch=True)
    look(page, 1)
    swipe = """([from, to]) => { const stage = document.querySelector('#viewer-stage');
      const at = (type, x) => stage.dispatchEvent(new PointerEvent(type, { pointerId: 1, pointerType: 'touch',
        clientX: x, clientY: 300, bubbles: true, isPrimary: true }));
      stage.setPointerCapture = () => {};
      at('pointerdown', from); at('pointermove', (from + to) / 2); at('pointermove', to); at('pointerup', to); }"""
    page.evaluate(swipe, [300, 100])
    assert page.inner_text("#viewer-place").startswith("3 of 9")
    page.evaluate(swipe, [100, 300])
    assert page.inner_text("#viewer-place").startswith("2 of 9")
    page.evaluate(swipe, [100, 120])  # too short to be meant
    assert page.inner_text("#viewer-place").startswith("2 of 9")


def test_the_path_is_copied_and_the_original_downloaded(open_page: Open, server_folder: Path) -> None:
    page = open_page("/?q=a+red+dog", permissions=["clipboard-read", "clipboard-write"])
    look(page, 1)
    shown = page.get_attribute("#viewer-name", "title")
    page.click("#viewer [data-do=copy]")
    page.wait_for_selector("#viewer .toast:text-is('Path copied.')")
    assert page.evaluate("navigator.clipboard.readText()") == str(server_folder / "pictures" / shown)
    with page.expect_download() as download:
        page.click("#viewer [data-do=download]")
    assert download.value.suggested_filename == shown.rpartition("/")[2]
    assert Path(download.value.path()).read_bytes() == (server_folder / "pictures" / shown).read_bytes()


def test_several_are_chosen(open_page: Open, server_folder: Path) -> None:
    page = open_page("/?q=a+red+dog", permissions=["clipboard-read", "clipboard-write"])
    boxes = page.locator("#found .tick input")
    assert not page.is_visible("#chosen")
    page.hover("#found .card >> nth=1")
    boxes.nth(1).click()
    assert page.inner_text("#chosen-count") == "1 chosen"
    boxes.nth(3).click(modifiers=["Shift"])
    assert page.inner_text("#chosen-count") == "3 chosen"
    first = page.eval_on_selector_all("#found .tick input:checked", "boxes => boxes.map(box => box.value)")
    page.locator("#found .open").nth(5).focus()
    page.keyboard.press("x")
    assert page.inner_text("#chosen-count") == "4 chosen"
    page.keyboard.press("x")
    assert page.inner_text("#chosen-count") == "3 chosen"
    search(page, "three small boat")  # what was chosen stays so
    assert page.inner_text("#chosen-count") == "3 chosen"
    assert set(page.eval_on_selector_all("#found .tick input:checked", "b => b.map(box => box.value)")) == set(first)
    page.click("#copy-paths")
    page.wait_for_selector("#toast:text('3 paths copied')")
    paths = page.evaluate("navigator.clipboard.readText()").split("\n")
    assert all(Path(path).is_file() for path in paths)
    page.click("#filters summary")
    page.fill("#path", "album/000*")
    page.press("#path", "Enter")
    settled(page, "document.querySelectorAll('#found > li').length === 1")
    with page.expect_download() as download:  # those that are not among the results any more are in it, too
        page.click("#zip")
    with zipfile.ZipFile(download.value.path()) as archive:
        assert archive.testzip() is None
        assert {str(server_folder / "pictures" / name) for name in archive.namelist()} == set(paths)
    page.click("text=Clear all")
    settled(page, "document.querySelectorAll('#found > li').length === 9")
    page.click("#choose-all")
    assert page.inner_text("#chosen-count") == "9 chosen"
    page.click("#choose-none")
    assert not page.is_visible("#chosen")


def test_why_nothing_is_shown(open_page: Open) -> None:
    page = open_page("/?q=dog&where=stars%3E%3D3&path=album/000*")
    assert "No picture passes these 2 filters together" in page.inner_text(".nothing")
    assert page.locator(".outs a").all_inner_texts() == [
        "Without “in album/000*”: 3 pictures",
        "Without “stars>=3”: 1 picture",
        "Search without filters",
    ]
    page.click(".outs a >> nth=1")
    settled(page, "document.querySelectorAll('#found > li').length === 1")
    page.goto("/?q=dog&sure=1")
    if page.is_visible(".nothing"):
        assert "the nearest is" in page.inner_text(".nothing")
        page.click("text=Show the nearest all the same")
        settled(page, "document.querySelectorAll('#found > li').length === 9")


def test_that_the_server_is_at_work_is_seen(browser: Any, server: str) -> None:
    context = browser.new_context(viewport=DESK, base_url=server)
    page = context.new_page()
    page.goto("/?q=dog")
    page.route(re.compile("q=boat"), lambda route: None)  # never answered
    page.fill("#q", "boat")
    page.press("#q", "Enter")
    page.wait_for_selector("body.busy #results[aria-busy=true]")
    page.wait_for_function("() => document.querySelector('[data-part=status]').textContent === 'Looking…'")
    context.close()


def test_long_names_keep_their_ends(open_page: Open) -> None:
    page = open_page("/?q=dog", PHONE)
    parts = page.evaluate(
        """() => { const path = document.querySelector('#found .path');
          path.querySelector('.name').textContent = 'a-very-long-name-of-a-picture-that-goes-on-and-on-';
          path.append(Object.assign(document.createElement('span'), { className: 'tail', textContent: '_0042.jpg' }));
          const box = path.getBoundingClientRect(), tail = path.lastChild.getBoundingClientRect();
          return { inside: tail.right <= box.right + 1, whole: path.lastChild.scrollWidth <= tail.width + 1 }; }"""
    )
    assert parts == {"inside": True, "whole": True}
