import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.explain.explanation import Explanation
from diptych.explain.html import data_uri, explanation_page, picture_page
from diptych.explain.page_parts import SCRIPT
from tests.explain import pairs

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
    assert told["whole"] == "word_to_region"
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
    assert "<canvas>" in page


def test_pictures_travel_inside() -> None:
    assert data_uri(GREY).startswith("data:image/png;base64,")
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 300, 3), dtype=np.uint8))
    assert data_uri(noise).startswith("data:image/jpeg;base64,")
    assert 'alt="two &amp; two"' in picture_page("t", GREY, "two & two")


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: the script is not checked")
def test_the_script_is_sound(tmp_path: Path) -> None:
    (tmp_path / "page.js").write_text(SCRIPT)
    subprocess.run(["node", "--check", str(tmp_path / "page.js")], check=True)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed: the page is not run")
@pytest.mark.parametrize("pair", [pairs.boxes(), pairs.cells()], ids=["boxes", "cells"])
def test_a_word_shows_where_it_looks_and_a_region_which_words(pair: Explanation, tmp_path: Path) -> None:
    """What the elements look like after a word, then a region, was pointed at, as the page itself reports it."""
    probe = """<script>
    const point = e => e.dispatchEvent(new MouseEvent('mouseenter'));
    const leave = e => e.dispatchEvent(new MouseEvent('mouseleave'));
    const found = {};
    point(words[1]);
    found.word = note.textContent;
    found.regions = regions.map(r => parseFloat(r.style.strokeWidth) || 0);
    found.cell = canvas ? [...canvas.getContext('2d').getImageData(0, 0, 1, 1).data] : null;
    leave(words[1]); point(regions[0]);
    found.region = note.textContent;
    found.words = words.map(w => w.style.background.match(/[\\d.]+(?=\\)$)/)[0]).map(Number);
    document.title = JSON.stringify(found);
    </script></body>"""
    path = tmp_path / "page.html"
    path.write_text(explanation_page(pair, GREY).replace("</body>", probe))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", path.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    title = re.search(r"<title>(.*?)</title>", shown)
    assert title is not None
    found = json.loads(title[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert found["word"].startswith(f"“{pair.words[1]}”")
    assert found["region"].startswith("region 1")
    if pair.grid is None:
        assert found["regions"][1] > 5 > found["regions"][0]  # the second word looks at the second region
        assert found["words"][0] > found["words"][1]  # the first region has to do with the first word
    else:
        assert found["cell"][0] > 200  # the second word needs the first cell
        assert found["words"][1] > found["words"][0]
