import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from diptych.common.pages import static_text
from diptych.explain.draw import HELPS, HURTS, NIGHT, RAMP
from diptych.explain.explanation import Explanation
from diptych.explain.html import data_uri, explanation_page, picture_page
from tests.explain import pairs
from tests.web.chromium import FAINT_TEXT, chromium

GREY = Image.new("RGB", (60, 40), (128, 128, 128))


def data(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    told: dict[str, object] = json.loads(found[1])
    return told


def test_the_page_holds_all_arrays_and_asks_nothing_of_anybody() -> None:
    page = explanation_page(pairs.boxes(), GREY)
    told = data(page)
    assert told["arrays"] == pairs.boxes().to_json()["arrays"]
    assert isinstance(told["whole"], dict)
    assert told["whole"]["name"] == "word_to_region"
    assert page.count("<rect data-region") == 3
    assert not re.search(r"https?://|url\(|<link|@import", page)
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page


def test_a_sentence_cannot_become_markup() -> None:
    pair = pairs.pair("</script> <b>", word_drop=np.zeros(2))
    page = explanation_page(pair, None)
    assert data(page)["sentence"] == "</script> <b>"
    assert page.count("</script>") == 2
    assert "<b>" not in page


def test_without_boxes_regions_are_buttons() -> None:
    pair = pairs.pair("a", regions=4, together=np.ones((1, 4), dtype=np.float32))
    page = explanation_page(pair, GREY)
    assert page.count('<button type="button" data-region') == 4
    assert "<svg" not in page


def test_slots_and_their_sentences_are_on_the_page() -> None:
    page = explanation_page(pairs.cells(), GREY)
    assert page.count("data-slot=") == 6
    assert "a dog &amp; cat (0.90)" in page
    assert "<canvas" in page


def test_pictures_travel_inside() -> None:
    assert data_uri(GREY).startswith("data:image/png;base64,")
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 300, 3), dtype=np.uint8))
    assert data_uri(noise).startswith("data:image/jpeg;base64,")
    assert 'alt="two &amp; two"' in picture_page("t", GREY, "two & two")


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: the script is not checked")
def test_the_script_is_sound(tmp_path: Path) -> None:
    (tmp_path / "why.mjs").write_text(static_text("explain/why.js"))
    subprocess.run(["node", "--check", str(tmp_path / "why.mjs")], check=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page of a pair as a file; in the end it had no error, and asked for nothing but itself."""
    context = browser.new_context(viewport={"width": 1280, "height": 860}, reduced_motion="reduce")
    wrong: list[str] = []

    def open_page(pair: Explanation, picture: Image.Image | None = GREY) -> Any:
        path = tmp_path / "page.html"
        path.write_text(explanation_page(pair, picture), encoding="utf-8")
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else wrong.append(asked.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    context.close()
    assert wrong == []


LAST = {"x": 5, "y": 300}  # on the last region of `pairs.boxes`, where no other lies over it
LOOK = """() => ({
  note: document.querySelector('#why-now').textContent,
  strokes: [...document.querySelectorAll('[data-region]')].sort((a, b) => a.dataset.region - b.dataset.region)
    .map(region => parseFloat(region.style.strokeWidth) || 0),
  map: [...document.querySelectorAll('[data-region]')].sort((a, b) => a.dataset.region - b.dataset.region)
    .map(region => Number(region.dataset.strength)),
  words: [...document.querySelectorAll('.words button')].map(word => Number(word.dataset.strength)),
  cell: [...document.querySelector('canvas')?.getContext('2d').getImageData(0, 0, 1, 1).data || []],
})"""


@pytest.mark.parametrize("pair", [pairs.boxes(), pairs.cells()], ids=["boxes", "cells"])
def test_a_word_shows_where_it_looks_and_a_region_which_words(pair: Explanation, opened: Callable[..., Any]) -> None:
    page = opened(pair)
    rest = page.evaluate(LOOK)
    page.locator(".words button").nth(1).hover()
    word = page.evaluate(LOOK)
    page.hover("#why-title")
    assert page.evaluate(LOOK) == rest
    page.locator("[data-region='0']").hover()
    region = page.evaluate(LOOK)
    assert word["note"].startswith(f"“{pair.words[1]}” looks most at")
    if pair.grid is None:
        assert word["strokes"][1] > 5 > word["strokes"][0]  # the second word looks at the second region
        assert "looks most at the middle." in word["note"]
        assert region["words"][0] > region["words"][1]  # the first region has to do with the first word
        assert region["note"] == "The top left has most to do with “red”."
    else:
        assert word["cell"][0] > 200  # the second word needs the first cell
        assert "looks most at the top left. Without it the score rises by 0.100." in word["note"]
        assert region["words"][1] > region["words"][0]
        assert region["note"] == "The top left has most to do with “dog”."


def test_a_click_holds_it_and_escape_lets_it_go(opened: Callable[..., Any]) -> None:
    page = opened(pairs.boxes(word_gates=np.array([0.25, 1.0], dtype=np.float32)))
    rest = page.evaluate(LOOK)
    assert rest["words"] == [0.25, 1.0]  # a gate means something in itself
    page.locator(".words button").nth(0).click()
    assert "Its gate is 0.25." in page.evaluate(LOOK)["note"]
    held = page.evaluate(LOOK)
    page.locator(".words button").nth(1).hover()
    assert page.evaluate(LOOK) == held
    page.keyboard.press("Escape")
    assert page.evaluate(LOOK) == rest


def test_people_choose_what_says_where_the_words_look(opened: Callable[..., Any]) -> None:
    back = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], dtype=np.float32)  # as if the regions looked the other way
    together = np.array([[0.2, 0.4, -1.0], [0.1, 0.0, 0.0]], dtype=np.float32)
    page = opened(pairs.boxes(region_to_word=back, together=together))
    assert page.locator("input[name=mode]:checked").get_attribute("value") == "word_to_region"
    # Of each, where both words look, and what the first and the last region have to do with.
    expected = {
        "region_to_word": ([[0.0, 1.0, 0.5], [1.0, 0.0, 0.5]], [[0.0, 1.0], [1.0, 1.0]]),
        "together": ([[0.5, 1.0, 0.0], [0.25, 0.0, 0.0]], [[1.0, 0.5], [0.0, 0.0]]),
        "word_to_region": ([[1.0, 0.111, 0.0], [0.0, 1.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]]),
    }
    for mode, (looks, answers) in expected.items():
        page.locator(f"input[value={mode}]").check()
        for word, row in enumerate(looks):
            page.locator(".words button").nth(word).hover()
            assert page.evaluate(LOOK)["map"] == pytest.approx(row, abs=0.001), mode
        for region, row in zip((0, 2), answers, strict=True):
            page.locator(f"[data-region='{region}']").hover(position=LAST if region == 2 else None)
            assert page.evaluate(LOOK)["words"] == pytest.approx(row, abs=0.001), mode
        page.hover("#why-title")


def test_a_slot_shows_what_it_holds(opened: Callable[..., Any]) -> None:
    slots = np.zeros((2, 3, 6), dtype=np.float32)
    slots[0, 2, 1] = slots[1, 2, 3] = slots[1, 1, 5] = 1
    page = opened(pairs.cells(slot_to_region=slots))
    page.locator("[data-slot='1,2']").hover()
    shown = page.evaluate(LOOK)
    assert shown["map"] == [0, 0, 0, 1, 0, 0]
    assert shown["note"] == "What slot 3 holds after iteration 2."


def test_keys_go_among_the_regions(opened: Callable[..., Any]) -> None:
    page = opened(pairs.cells())
    assert page.locator("[data-region][tabindex='0']").count() == 1
    page.locator("[data-region='0']").focus()
    for key, expected in (("ArrowRight", 2), ("ArrowDown", 5), ("ArrowLeft", 4)):
        page.keyboard.press(key)
        if key == "ArrowRight":
            page.keyboard.press(key)
        assert page.evaluate("Number(document.activeElement.dataset.region)") == expected


def test_without_boxes_a_number_stands_for_a_region(opened: Callable[..., Any]) -> None:
    together = np.array([[1, 0, 0, 0.5]], dtype=np.float32)
    page = opened(pairs.pair("a", regions=4, together=together), None)
    page.locator(".words button").hover()
    assert page.evaluate(LOOK)["map"] == [1, 0, 0, 0.5]


def test_a_pair_of_which_nothing_is_shown_still_has_a_page(opened: Callable[..., Any]) -> None:
    page = opened(pairs.boxes(word_to_region=None))
    page.locator("[data-region='1']").hover()
    assert page.evaluate(LOOK)["note"] == "The middle"
    page.locator(".words button").first.hover()
    assert page.evaluate(LOOK)["note"] == "“red”"


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_and_fits(opened: Callable[..., Any], scheme: str, width: int) -> None:
    page = opened(pairs.cells(word_gates=np.array([0.5, 1.0], dtype=np.float32)))
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(FAINT_TEXT) == []
    light = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert max(light) < 50 if scheme == "dark" else min(light) > 230


def test_drawn_pictures_have_the_page_s_colours(opened: Callable[..., Any]) -> None:
    page = opened(pairs.boxes())
    read = "name => getComputedStyle(document.documentElement).getPropertyValue(name).split(',').map(Number)"
    for name, value in [("--night", NIGHT), ("--warm", HELPS), ("--cold", HURTS)]:
        assert page.evaluate(read, name) == list(value)
    assert [page.evaluate(read, f"--ramp-{i}") for i in range(len(RAMP))] == RAMP.tolist()
