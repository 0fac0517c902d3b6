import base64
import io
from pathlib import Path

import numpy as np
from PIL import Image

from diptych.search.asking.notebook import MOST, SIDE
from diptych.search.asking.results import RankedResults, Result
from tests.html_page import Page


def noise(path: Path, size: tuple[int, int] = (900, 600)) -> Path:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)).save(path)
    return path


def answer(*results: Result) -> RankedResults:
    return RankedResults(list(results), {})


def test_a_picture_is_shown_small_with_its_score_and_confidence(tmp_path: Path) -> None:
    key = str(noise(tmp_path / "dog.png"))
    page = Page(answer(Result(key, "picture", 0.4567, 0.98))._repr_html_())
    (image,) = page.all("img")
    kind, _, data = image["src"].partition(",")
    assert kind == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (107, SIDE)
    assert "0.457 · 98 % sure" in page.text
    assert f"{tmp_path.name}/dog.png" in page.text
    assert str(tmp_path.parent) not in page.html  # what is saved with a notebook need not tell where a home is


def test_sentences_and_pictures_that_are_gone_have_their_places_too(tmp_path: Path) -> None:
    gone = Result(str(tmp_path / "gone.png"), "picture", 0.5)
    page = Page(answer(gone, Result("notes.txt#3", "sentence", 0.25, text="two dogs"))._repr_html_())
    assert not page.all("img")
    assert "its picture cannot be read" in page.text
    assert "two dogs" in page.text
    assert "sure" not in page.text


def test_names_and_sentences_are_escaped(tmp_path: Path) -> None:
    odd = noise(tmp_path / '"><script>alert(1)</script>.png'.replace("/", "."), (20, 20))
    html = answer(Result(str(odd), "picture", 1.0), Result("a", "sentence", 0.0, text="<img onerror=x>"))._repr_html_()
    page = Page(html)
    assert not page.all("script")
    assert len(page.all("img")) == 1
    assert "<img onerror=x>" in page.text


def test_it_needs_nothing_else_and_stays_small(tmp_path: Path) -> None:
    key = str(noise(tmp_path / "noise.png"))
    html = answer(*[Result(key, "picture", 0.5)] * 100)._repr_html_()
    page = Page(html)
    assert len(page.all("img")) == MOST
    assert f"… and {100 - MOST} more" in page.text
    assert len(html) < 1 << 20  # of noise, which is as large as pictures get
    assert "http" not in html
    addresses = [attrs["src"] for _, attrs in page.elements if "src" in attrs]
    assert all(address.startswith("data:image/jpeg") for address in addresses)


def test_that_nothing_matches_is_said() -> None:
    assert "Nothing was found" in Page(answer()._repr_html_()).text
    unsure = answer(Result("a.png", "picture", 0.1, 0.2))
    assert "Nothing here seems to match" in Page(unsure._repr_html_()).text
    sure = answer(Result("a.png", "picture", 0.1, 0.95))
    assert "Nothing here" not in Page(sure._repr_html_()).text


def test_one_result_is_shown_alone(tmp_path: Path) -> None:
    page = Page(Result(str(noise(tmp_path / "a.png", (20, 20))), "picture", 0.3, 0.1)._repr_html_())
    assert len(page.all("img")) == 1
    assert "Nothing here" not in page.text
