import numpy as np
import pytest
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.explain.compare import SwappedPairs, compare, comparison_sheet
from diptych.explain.draw import enlarged, over_picture, ramp, scaled, shade, shaded_words, shades
from diptych.explain.sheet import explanation_sheet, heading, wrapped
from tests.explain import pairs
from tests.explain.hand_made import case
from tests.explain.test_explain import regions

GREY = Image.new("RGB", (60, 40), (128, 128, 128))


def brightness(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("L"), dtype=np.float64)


def test_the_ramp_grows_brighter_all_the_way() -> None:
    light = ramp(np.linspace(0, 1, 50)) @ [0.3, 0.59, 0.11]
    assert (np.diff(light) > 0).all()
    np.testing.assert_array_equal(ramp(np.array([-1.0, 2.0])), ramp(np.array([0.0, 1.0])))


def test_values_are_scaled_by_their_largest() -> None:
    np.testing.assert_allclose(scaled(np.array([-1.0, 1.0, 2.0])), [0, 0.5, 1])
    np.testing.assert_allclose(scaled(np.array([1.0, 8.0]), top=4), [0.25, 1])
    np.testing.assert_allclose(scaled(np.array([0.0, -2.0])), [0, 0])
    np.testing.assert_allclose(shades(np.array([-2.0, 1.0])), [-1, 0.5])
    np.testing.assert_allclose(shades(np.zeros(2)), [0, 0])


@pytest.mark.parametrize("chosen", range(6))
def test_a_heat_map_is_brightest_in_its_cell(chosen: int) -> None:
    drawn = brightness(over_picture(GREY, pairs.cells(), np.eye(6)[chosen], width=240))
    assert drawn.shape == (160, 240)
    cells = drawn.reshape(2, 80, 3, 80).mean((1, 3)).reshape(-1)
    assert cells.argmax() == chosen


def test_the_strong_box_is_lit_and_outlined_and_the_rest_dim() -> None:
    drawn = over_picture(GREY, pairs.boxes(), np.array([0.0, 1.0, 0.0]), width=240)
    light = brightness(drawn)
    assert light[70:90, 150:170].mean() == pytest.approx(128, abs=1)  # inside: as it was
    assert light[20:60, 20:60].mean() < 90
    assert drawn.getpixel((121, 80)) == tuple(np.rint(ramp(np.array(1.0))).astype(int))  # its left edge
    # A region for the whole picture is outlined only.
    whole = brightness(over_picture(GREY, pairs.boxes(), np.array([0.0, 0.0, 1.0]), width=240))
    assert whole[60:100, 60:100].mean() < 90
    assert whole[0].mean() > 200


def test_boxes_that_leave_the_picture_or_are_empty_do_no_harm() -> None:
    boxes = np.array([[-50, -9, 10, 10], [20, 20, 20, 20], [50, 30, 500, 300]], dtype=np.float32)
    pair = pairs.pair("a", regions=3, given={"boxes": boxes, "size": (60, 40)})
    assert over_picture(GREY, pair, np.ones(3), width=120).size == (120, 80)


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(DiptychError, match="have no boxes"):
        over_picture(GREY, pairs.pair("a", regions=3), np.ones(3))
    with pytest.raises(DiptychError, match="2 values; expected one for each of 3"):
        over_picture(GREY, pairs.boxes(), np.ones(2))


def test_pictures_keep_their_aspect() -> None:
    assert enlarged(GREY, 300).size == (300, 200)
    assert enlarged(Image.new("L", (10, 100)), 50).size == (10, 100)


def test_words_are_shaded_warm_or_cold_and_wrapped() -> None:
    assert shade(0) == (255, 255, 255)
    warm, cold = shade(1), shade(-1)
    assert warm[0] > warm[2]
    assert cold[0] < cold[2]
    one = shaded_words(["dog"], np.array([1.0]), 400)
    assert shade(1) in {colour for _, colour in one.getcolors(10_000) or []}
    many = shaded_words(["dog"] * 30, np.zeros(30), 400)
    assert many.height > 2 * one.height
    assert wrapped("one two three", 1, 14) == ["one", "two", "three"]
    assert wrapped("one two three", 1000, 14) == ["one two three"]


def test_sheets_hold_every_word_and_slot() -> None:
    words_only = explanation_sheet(pairs.boxes(), GREY)
    slots = explanation_sheet(pairs.cells(), GREY)
    assert words_only.width == slots.width == 960
    assert slots.height > words_only.height + 200
    explanation_sheet(pairs.boxes(word_to_region=None, word_gates=np.array([0.5, 0.6])), GREY)


def test_gates_are_shaded_for_what_they_are_and_not_by_the_largest() -> None:
    open_gates, half = (pairs.boxes(word_gates=np.array([g, g])) for g in (1.0, 0.5))
    for gate, pair in ((1.0, open_gates), (0.5, half)):
        colours = {colour for _, colour in heading(pair, 600).getcolors(100_000) or []}
        assert shade(gate) in colours
        assert shade(1.5 - gate) not in colours


def test_pairs_that_fit_stand_beside_their_swaps(tiny_bert: str) -> None:
    matcher = case("camp", tiny_bert)
    images, sentences = [regions(3), regions(4)], ["a red dog", "two dogs"]
    found = compare(matcher, images, sentences)
    np.testing.assert_allclose(found.scores(), matcher.similarity(images, sentences), atol=1e-5)
    gates = found.gates()
    assert gates is not None
    pair = found.pairs[1][0]
    words, regions_ = pair.array("word_gates"), pair.array("region_gates")
    assert words is not None
    assert regions_ is not None
    assert gates[1, 0] == pytest.approx((words.mean() + regions_.mean()) / 2)
    assert found.to_json()["pairs"][0][1]["sentence"] == "two dogs"
    sheet = comparison_sheet(found, [GREY, GREY], tile=200)
    assert sheet.width > 400
    assert SwappedPairs(((pairs.cells(),),)).gates() is None
    with pytest.raises(DiptychError, match="expected as many of each, two or more"):
        compare(matcher, images, ["a dog"])
