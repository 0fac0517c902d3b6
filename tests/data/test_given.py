import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.collection import Regions
from diptych.data.given import as_picture, each_picture, each_sentence, in_lists, one_picture
from diptych.data.open_picture import open_picture

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)


def png(array: np.ndarray = PIXELS) -> bytes:
    data = io.BytesIO()
    Image.fromarray(array).save(data, "png")
    return data.getvalue()


def shown(given: Any) -> np.ndarray:
    picture = as_picture(given, "the picture")
    assert not isinstance(picture, Regions)
    return np.asarray(open_picture(picture))


@pytest.mark.parametrize(
    "given",
    [
        Image.fromarray(PIXELS), PIXELS, PIXELS / 255, (PIXELS / 255).astype(np.float16), PIXELS.astype(np.int64),
        PIXELS[:, ::-1][:, ::-1], PIXELS.transpose(2, 0, 1), torch.from_numpy(PIXELS),
        torch.from_numpy(PIXELS).permute(2, 0, 1), torch.from_numpy(PIXELS / 255).permute(2, 0, 1).requires_grad_(),
        png(), bytearray(png()), memoryview(png()), io.BytesIO(png()), lambda: Image.fromarray(PIXELS),
        np.dstack([PIXELS, np.full((5, 7, 1), 255, np.uint8)]),
    ],
)  # fmt: skip
def test_a_picture_in_every_form_has_the_same_pixels(given: Any) -> None:
    np.testing.assert_array_equal(shown(given), PIXELS)


def test_files_and_open_files(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png())
    np.testing.assert_array_equal(shown(str(path)), PIXELS)
    np.testing.assert_array_equal(shown(path), PIXELS)
    with path.open("rb") as file:
        file.read(10)  # wherever it stands
        np.testing.assert_array_equal(shown(file), PIXELS)
    with path.open(encoding="latin-1") as text, pytest.raises(DiptychError, match=r"gives str; expected .* for bytes"):
        shown(text)


@pytest.mark.parametrize("grey", [PIXELS[..., 0], PIXELS[..., :1], PIXELS[..., :1].transpose(2, 0, 1)])
def test_one_channel_is_grey(grey: np.ndarray) -> None:
    np.testing.assert_array_equal(shown(grey), np.repeat(PIXELS[..., :1], 3, 2))


def test_where_both_ends_could_be_channels_numpy_has_them_last_and_torch_first() -> None:
    square = np.random.default_rng(1).integers(0, 256, (3, 4, 3), np.uint8)
    np.testing.assert_array_equal(shown(square), square)
    np.testing.assert_array_equal(shown(torch.from_numpy(square)), square.transpose(1, 2, 0))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (PIXELS * 1.0, "its pixels go from .* expected floats from 0 to 1"),
        (PIXELS / 255 - 0.5, "its pixels go from -0"),
        (np.full((2, 2, 3), np.nan), "its pixels go from nan to nan"),
        (PIXELS.astype(np.int32) + 1000, "whole numbers from 0 to 255"),
        (PIXELS > 3, "an array of bool; expected uint8"),
        (np.zeros((5, 7, 2), np.uint8), r"shape \(5, 7, 2\) is no picture"),
        (np.zeros((5,), np.uint8), r"shape \(5,\) is no picture"),
        (np.zeros((0, 7, 3), np.uint8), "has no pixels"),
        (b"nothing", "picture 1: not a picture of a known format"),
        (17, "picture 1: expected a file's name, .* got int"),
        (None, "picture 1: .*got NoneType"),
    ],
)
def test_what_is_no_picture_is_said_with_its_place(given: Any, words: str) -> None:
    pictures = each_picture([PIXELS, given])
    next(pictures)
    with pytest.raises(DiptychError, match=words) as caught:
        open_picture(next(pictures))  # type: ignore[arg-type]
    assert str(caught.value).startswith("picture 1: ")


def test_one_and_many_are_told_apart() -> None:
    for one in ("a.jpg", Path("a.jpg"), Image.new("RGB", (2, 2)), b"", PIXELS, torch.zeros(3, 4, 5), io.BytesIO()):
        assert one_picture(one)
        assert len(list(each_picture(one))) == 1
    assert [len(list(each_picture(many))) for many in (["a.jpg", "b.jpg"], np.stack([PIXELS] * 4), ())] == [2, 4, 0]
    assert [str(path) for path in each_picture(np.array(["a.jpg", "b.jpg"]))] == ["a.jpg", "b.jpg"]


def test_for_a_matcher_of_features_numbers_of_two_dimensions_are_one_pictures_features() -> None:
    for given, count in ((np.zeros((36, 6)), 1), (torch.zeros(36, 6), 1), (np.zeros((5, 36, 6)), 5)):
        found = list(each_picture(given, feature_dim=6))
        assert [one.vectors.shape for one in found if isinstance(one, Regions)] == [(36, 6)] * count
    (picture,) = each_picture(PIXELS, feature_dim=6)
    assert isinstance(picture, Image.Image)
    with pytest.raises(DiptychError, match=r"picture 0: local features of shape \(6,\); expected \(regions, 6\)"):
        list(each_picture([np.zeros(6)], feature_dim=6))


def test_sentences_one_many_and_none() -> None:
    assert list(each_sentence("a dog")) == ["a dog"]
    assert list(each_sentence(word for word in ("a", "b"))) == ["a", "b"]
    assert list(each_sentence(np.array(["a", "b"]))) == ["a", "b"]
    for given, words in ((17, "got int"), (b"a", "got bytes"), (["a", 3], "sentence 1: expected text, got int")):
        with pytest.raises(DiptychError, match=words):
            list(each_sentence(given))


def test_lists_are_asked_for_one_at_a_time() -> None:
    asked = []

    def items() -> Iterator[int]:
        for i in range(5):
            asked.append(i)
            yield i

    lists = in_lists(items(), 2)
    assert next(lists) == [0, 1]
    assert asked == [0, 1]
    assert list(lists) == [[2, 3], [4]]
    with pytest.raises(DiptychError, match="batch_size: expected at least 1, got 0"):
        next(in_lists([1], 0))
