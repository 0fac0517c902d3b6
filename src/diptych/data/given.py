"""Pictures and sentences as people give them, one or many, to what the rest of the package takes.

A picture is a file's name, a PIL picture, an array, bytes, an open file, a function that decodes it, or its local
features. Many of them are a list, an array of arrays, or anything else that can be gone through once.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from PIL import Image
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.data.collection import Regions
from diptych.data.open_picture import Picture
from diptych.data.pictures import PictureBytes

GivenPicture = Picture | Regions | np.ndarray | Tensor | bytes | bytearray | memoryview | IO[bytes]
EXPECTED = "expected a file's name, a PIL picture, an array, bytes, an open file or local features"
CHANNELS = (1, 3, 4)
T = TypeVar("T")


def one_picture(given: Any, feature_dim: int | None = None) -> bool:
    """Whether this is one picture, and not many of them.

    feature_dim: the length of local features where they are what is taken; an array (regions, f) is then one picture,
    and (n, regions, f) are many
    """
    if isinstance(given, np.ndarray | Tensor):
        if feature_dim is not None and given.ndim == 3 and given.shape[-1] == feature_dim:
            return False
        return given.ndim in (2, 3)
    if isinstance(given, str | os.PathLike | Image.Image | Regions | bytes | bytearray | memoryview):
        return True
    return callable(given) or hasattr(given, "read")


def each_picture(given: Any, feature_dim: int | None = None) -> Iterator[Picture | Regions]:
    """One picture or many, one after another, as `as_picture` gives them; nothing is decoded yet."""
    if one_picture(given, feature_dim):
        yield as_picture(given, "the picture", feature_dim)
        return
    if not isinstance(given, Iterable):
        raise DiptychError(f"pictures: {EXPECTED}, or several of these, got {type(given).__name__}")
    for place, picture in enumerate(given):
        yield as_picture(picture, f"picture {place}", feature_dim)


def as_picture(given: Any, name: str, feature_dim: int | None = None) -> Picture | Regions:
    """One picture as what opens it, or its local features; `name` is what errors call it."""
    if isinstance(given, str | os.PathLike):
        return Path(given)
    if isinstance(given, Image.Image | Regions):
        return given
    if isinstance(given, bytes | bytearray | memoryview):
        return PictureBytes(bytes(given), name)
    if isinstance(given, np.ndarray | Tensor):
        array = _numbers(given)
        # Numbers of two dimensions are local features, but for grey pixels given to what takes pictures.
        if array.ndim == 2 and (feature_dim is not None or array.dtype != np.uint8):
            return Regions(array)
        if feature_dim is not None and array.ndim < 2:
            raise DiptychError(f"{name}: local features of shape {array.shape}; expected (regions, {feature_dim})")
        return _from_array(array, name, first=isinstance(given, Tensor))
    if hasattr(given, "read"):
        return PictureBytes(_contents(given, name), getattr(given, "name", None) or name)
    if callable(given):
        opened: Callable[[], Image.Image] = given
        return opened
    raise DiptychError(f"{name}: {EXPECTED}, got {type(given).__name__}")


def each_sentence(given: Any) -> Iterator[str]:
    """One sentence or many, one after another."""
    if isinstance(given, str):
        yield given
        return
    if not isinstance(given, Iterable) or isinstance(given, bytes | bytearray):
        raise DiptychError(f"sentences: expected a sentence or several of them, got {type(given).__name__}")
    for place, sentence in enumerate(given):
        if not isinstance(sentence, str):
            raise DiptychError(f"sentence {place}: expected text, got {type(sentence).__name__}")
        yield sentence


def in_lists(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """So many items at a time, none of them asked for before its list is."""
    if size < 1:
        raise DiptychError(f"batch_size: expected at least 1, got {size}")
    walk = iter(items)
    while chunk := list(islice(walk, size)):
        yield chunk


def _numbers(given: np.ndarray | Tensor) -> np.ndarray:
    if isinstance(given, np.ndarray):
        return given
    plain = given.detach().cpu()
    return plain.float().numpy() if plain.is_floating_point() else plain.numpy()


def _contents(file: Any, name: str) -> bytes:
    """All bytes of an open file, whatever was read of it already."""
    if getattr(file, "seekable", lambda: False)():
        file.seek(0)
    data = file.read()
    if not isinstance(data, bytes):
        raise DiptychError(f"{name}: the file gives {type(data).__name__}; expected one that is opened for bytes")
    return data


def _from_array(array: np.ndarray, name: str, first: bool) -> Image.Image:
    """A picture of pixels (height, width, channels), or (channels, height, width) where `first` or only that fits."""
    told = f"{name}: an array of shape {array.shape}"
    if array.ndim == 3:
        fits_first, fits_last = array.shape[0] in CHANNELS, array.shape[2] in CHANNELS
        if fits_first and (first or not fits_last):
            array = np.moveaxis(array, 0, 2)
        elif not fits_last:
            raise DiptychError(f"{told} is no picture; expected (height, width, 3)")
    elif array.ndim != 2:
        raise DiptychError(f"{told} is no picture; expected (height, width, 3)")
    if not array.size:
        raise DiptychError(f"{told} has no pixels")
    pixels = np.ascontiguousarray(_as_bytes(array, name))
    return Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)


def _as_bytes(array: np.ndarray, name: str) -> np.ndarray:
    """Pixels from 0 to 255: whole numbers that are so already, or others from 0 to 1."""
    if array.dtype == np.uint8:
        return array
    whole = np.issubdtype(array.dtype, np.integer)
    if not whole and not np.issubdtype(array.dtype, np.floating):
        raise DiptychError(f"{name}: an array of {array.dtype}; expected uint8, or floats from 0 to 1")
    low, high, most = array.min(), array.max(), 255 if whole else 1
    if not (low >= 0 and high <= most):  # says no to what is not a number, too
        kind = "whole numbers from 0 to 255" if whole else "floats from 0 to 1, or uint8"
        raise DiptychError(f"{name}: its pixels go from {low:g} to {high:g}; expected {kind}")
    return array.astype(np.uint8) if whole else np.rint(array.astype(np.float32) * 255).astype(np.uint8)
