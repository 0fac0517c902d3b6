import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.explain.draw import over_picture
from diptych.explain.explain import explain
from diptych.explain.notebook import MOST, SMALL, WIDTH
from diptych.matchers.base import Matcher
from tests.encoders.pictures import picture
from tests.explain import pairs
from tests.html_page import Page
from tests.search import tiny

NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (400, 600, 3), np.uint8))


def shown(address: str) -> np.ndarray:
    kind, _, data = address.partition(",")
    assert kind == "data:image/jpeg;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))), np.float32)


def test_the_sentence_and_each_word_have_a_map_over_the_picture() -> None:
    told = replace(pairs.cells(), picture=NOISE)
    page = Page(told._repr_html_())
    whole, *words = [shown(image["src"]) for image in page.all("img")]
    assert whole.shape[1] == WIDTH
    assert [word.shape[1] for word in words] == [SMALL] * 2
    name, maps = told.looks() or ("", np.zeros(0))
    assert name == "together"
    for drawn, values in zip(words, maps, strict=True):
        expected = np.asarray(over_picture(NOISE, told, values, float(maps.max()), SMALL), np.float32)
        assert np.abs(drawn - expected).mean() < 8  # but for what JPEG loses
    assert np.abs(words[0] - words[1]).mean() > 8
    assert "score 0.250" in page.text
    assert "which regions the words need" in page.text


def test_the_sentences_own_map_is_what_the_score_would_miss() -> None:
    plain = Image.new("RGB", (600, 400), (90, 160, 120))
    drop = np.array([0, 0, 0, 0, 0, 1], dtype=np.float32)
    told = replace(pairs.cells(region_drop=drop), picture=plain)
    page = Page(told._repr_html_())
    expected = np.asarray(over_picture(plain, told, drop, width=WIDTH), np.float32)
    assert np.abs(shown(page.all("img")[0]["src"]) - expected).mean() < 2
    assert "regions that the score would miss" in page.text


def test_words_are_shaded_by_what_the_score_would_miss() -> None:
    page = Page(pairs.cells()._repr_html_())
    red, dog = page.all("span")
    assert red["style"].startswith("background:rgba(244,150,28,1.00)")
    assert dog["style"].startswith("background:rgba(66,120,214,0.50)")
    assert (red["title"], dog["title"]) == ("0.200", "-0.100")


@pytest.mark.parametrize("given", [None, Path("gone.png")])
def test_without_the_picture_the_words_are_shown_alone(given: Path | None) -> None:
    page = Page(replace(pairs.boxes(), picture=given)._repr_html_())
    assert not page.all("img")
    assert "<dog>" in page.text  # escaped in the source


def test_it_needs_nothing_else_and_stays_small() -> None:
    sentence = " ".join(f"<i>{n}" for n in range(60))
    told = pairs.pair(
        sentence, 0.1, 3, given={"boxes": pairs.BOXES, "size": (60, 40)}, word_to_region=np.ones((60, 3), np.float32)
    )
    html = replace(told, picture=NOISE)._repr_html_()
    page = Page(html)
    assert len(page.all("img")) == 1 + MOST
    assert not page.all("i")
    assert not page.all("script")
    assert "http" not in html
    assert len(html) < 1 << 20


def test_whatever_form_the_picture_had_it_is_drawn(tmp_path: Path) -> None:
    matcher = Matcher.from_pretrained(tiny.save_vse(tmp_path / "model"))
    picture().save(tmp_path / "a.png")
    forms = [str(tmp_path / "a.png"), picture(), np.asarray(picture()), (tmp_path / "a.png").read_bytes()]
    drawn = [explain(matcher, form, "a red dog")._repr_html_() for form in forms]  # type: ignore[arg-type]
    assert len(set(drawn)) == 1
    assert len(Page(drawn[0]).all("img")) == 4
