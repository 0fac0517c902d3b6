import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.common.model_place import shipped_folder
from diptych.search.asking.calibration import MEASURED, USUAL, Calibration, calibrated
from diptych.search.asking.gumbel import Gumbel
from diptych.search.asking.query import SearchQuery, Term

LAW = Gumbel(3.0, 0.5, 100)
# Of the weights that the numbers were measured with. Measure them again where these change.
WEIGHTS = "5b0f0b43ec656c86"


def test_absent_things_stand_out_further_and_more_words_further_still() -> None:
    law = Calibration(further=1.0, by_word=0.5, wider=2.0).law(LAW, USUAL)
    assert (law.place, law.width, law.count) == (3.5, 1.0, 100)
    longer = Calibration(further=1.0, by_word=0.5, wider=2.0).law(LAW, 2 * USUAL)
    assert longer.place == pytest.approx(3.5 + 0.5 * 0.5 * np.log(2))
    assert Calibration().law(LAW, 3) == LAW


def test_numbers_are_used_only_where_they_were_measured() -> None:
    sentence = SearchQuery.of_sentence("a dog on a beach")
    assert calibrated(LAW, "default", sentence, "picture") == MEASURED["default"].law(LAW, 5)
    assert calibrated(LAW, "openai/clip-vit-base-patch32", sentence, "picture") == LAW
    assert calibrated(LAW, "default", sentence, "sentence") == LAW
    several = SearchQuery((Term("a dog"), Term("a beach")))
    assert calibrated(LAW, "default", several, "picture") == LAW
    picture = SearchQuery((Term(Image.new("RGB", (8, 8))),))
    assert calibrated(LAW, "default", picture, "picture") == LAW


def test_the_numbers_are_those_of_the_weights_that_ship() -> None:
    folder = shipped_folder("default")
    if folder is None:
        pytest.skip("this installation carries no model")
    digest = hashlib.sha256(Path(folder / "model.safetensors").read_bytes()).hexdigest()
    assert digest[:16] == WEIGHTS
