"""Picture files of every kind, decoded to upright RGB; what cannot be decoded is said in one sentence."""

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from diptych.common.errors import DiptychError
from diptych.data.photo import ORIENTATION, Columns, Note, photo_columns
from diptych.data.pixel_budget import PixelBudget
from diptych.data.raw import is_raw, open_raw, raw_columns

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jp2", ".avif"}
)
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip
_EXIF = {"exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif"}  # where Pillow looks for it
# Decoders that need nothing but the picture; others (such as PostScript's) start programs.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF", "HEIF")
# A picture of more pixels is not decoded: a few hundred kilobytes can stand for gigabytes.
MOST_PIXELS, MOST_PIXELS_VARIABLE = 150_000_000, "DIPTYCH_MAX_PIXELS"
# Modes that need several copies are converted so many pixels at a time.
PIXELS_AT_ONCE = 1 << 20


def known_formats() -> list[str]:
    """The formats that are meant, of those that this Pillow reads."""
    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


def most_pixels() -> int:
    """The most pixels of a picture that is decoded whole; the environment may say otherwise."""
    told = os.environ.get(MOST_PIXELS_VARIABLE, "")
    if told and not (told.isascii() and told.isdigit() and int(told[:18]) > 0):
        raise DiptychError(f"{MOST_PIXELS_VARIABLE}: {told!r} is not valid; expected a number of pixels")
    return int(told[:18]) if told else MOST_PIXELS


# What is decoded at a time, over all threads.
DECODED = PixelBudget(most_pixels)


def is_picture(name: str) -> bool:
    """Whether a file name ends like a picture's."""
    return Path(name).suffix.lower() in SUFFIXES


def decode(source: Path | IO[bytes], where: str, note: Note | None = None) -> Image.Image:
    """The picture in `source`, turned as its EXIF says, as RGB; `where` names it in errors.

    A file that is named like a camera's RAW gives its embedded preview.
    """
    try:
        if isinstance(source, Path) and is_raw(source.name):
            return raw_picture(source, note=note)[0]
        try:
            return _decoded(source, note)
        except UnidentifiedImageError:
            if not heic_is_read():
                raise
            if not isinstance(source, Path):
                source.seek(0)
            return _decoded(source, note)
    except DiptychError as error:
        raise DiptychError(str(error), where=where) from None
    except FileNotFoundError:
        raise DiptychError("no such picture", where=where) from None
    except Image.DecompressionBombError as error:
        raise DiptychError(f"the picture is too large to decode safely: {error}", where=where) from None
    except UnidentifiedImageError:
        raise DiptychError("not a picture of a known format", where=where) from None
    except Exception as error:  # Pillow's decoders raise all kinds on broken files
        raise DiptychError(f"the picture cannot be decoded: {_reason(error)}", where=where) from error


def _reason(error: Exception) -> str:
    """What Pillow or the file system says, without the file's name, which the sentence has already."""
    told = error.strerror if isinstance(error, OSError) else None
    return told or str(error) or type(error).__name__


def _decoded(source: Path | IO[bytes], note: Note | None) -> Image.Image:
    with _opened(source) as image:
        if image.width * image.height > most_pixels():
            raise Image.DecompressionBombError(
                f"{image.width} x {image.height} pixels, at most {most_pixels():,} are decoded"
            )
        if note is not None:
            note(photo_columns(image))
        with DECODED.decoding(image.width * image.height):
            image.load()
            return to_rgb(upright(image))


def raw_picture(path: Path, side: int | None = None, note: Note | None = None) -> tuple[Image.Image, tuple[int, int]]:
    """The preview of a camera's RAW file as upright RGB, and its whole size; decoded smaller where `side` is given."""
    preview = open_raw(path, most_pixels())
    image, size = preview.image, preview.image.size
    if note is not None:
        note(preview.columns)
    if size[0] * size[1] > most_pixels():
        raise Image.DecompressionBombError(f"{size[0]} x {size[1]} pixels, at most {most_pixels():,} are decoded")
    if side is not None and image.format == "JPEG" and min(size) >= 4 * side:
        image.draft(None, (2 * side, 2 * side))
    with DECODED.decoding(image.width * image.height):
        image.load()
        image = to_rgb(_turned(image, preview.orientation)).copy()  # which knows nothing of how the file says it lies
    image.info = {name: value for name, value in image.info.items() if name not in _EXIF}
    return image, size[::-1] if preview.orientation >= 5 else size


def _opened(source: Path | IO[bytes]) -> Image.Image:
    if isinstance(source, Path) and source.exists() and not source.is_file():  # a pipe would never end
        raise DiptychError("not a plain file; expected a picture")
    return Image.open(source, formats=known_formats())


def file_columns(path: Path) -> Columns:
    """What a picture file says of itself, without decoding it; an error where it is none."""
    try:
        heic_is_read()
        if is_raw(path.name):
            return raw_columns(path)
        with _opened(path) as image:
            return photo_columns(image)
    except DiptychError as error:
        raise DiptychError(error.within(path), where=path) from None
    except Exception as error:  # Pillow's readers raise all kinds on broken files
        raise DiptychError(f"the picture cannot be read: {_reason(error)}", where=path) from error


@cache
def heic_is_read() -> bool:
    """Whether HEIC pictures can be decoded here; if so, Pillow is told how, which takes a moment once."""
    if find_spec("pillow_heif") is None:
        return False
    from pillow_heif import register_heif_opener

    register_heif_opener()
    return True


def to_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB from any mode: transparency over white, 16-bit grey scaled down instead of cut off."""
    if image.mode == "RGB":
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _from_deep_grey(image)
    if "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
        return _in_strips(image, _over_white)
    return image.convert("RGB")


def upright(image: Image.Image) -> Image.Image:
    """The picture turned as its EXIF says; the one that is given stays as it is."""
    image.load()  # Pillow turns TIFFs by itself as it loads them
    try:
        return _turned(image, image.getexif().get(ORIENTATION, 1))
    except Exception:  # a broken EXIF block says nothing about the picture itself
        return image


def _turned(image: Image.Image, orientation: int) -> Image.Image:
    turn = _TURNS.get(orientation)
    if turn is None:
        return image
    turned = image.transpose(turn)
    turned.info = {name: value for name, value in image.info.items() if name not in _EXIF}  # else it is turned again
    return turned


def _from_deep_grey(image: Image.Image) -> Image.Image:
    tops = [np.asarray(strip).max(initial=0).astype(np.float64) for _, strip in _strips(image)]
    top = np.max(tops, initial=0.0)

    def shallow(strip: Image.Image) -> Image.Image:
        values = np.asarray(strip).astype(np.float64)
        if top > 255:
            values = values / 257.0
        elif image.mode == "F" and top <= 1:
            values = values * 255.0
        return Image.fromarray(np.clip(np.rint(np.nan_to_num(values)), 0, 255).astype(np.uint8), "L").convert("RGB")

    return _in_strips(image, shallow)


def _over_white(strip: Image.Image) -> Image.Image:
    layer = strip.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def _in_strips(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """An RGB picture, converted some rows at a time, so that only they are there in several copies."""
    out = Image.new("RGB", image.size)
    for top, strip in _strips(image):
        out.paste(convert(strip), (0, top))
    return out


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    rows = max(1, PIXELS_AT_ONCE // max(1, image.width))
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


@dataclass(frozen=True, slots=True)
class PictureFile:
    """Decodes a file when called."""

    path: Path

    def __call__(self, note: Note | None = None) -> Image.Image:
        """The picture as upright RGB."""
        return decode(self.path, str(self.path), note)


@dataclass(frozen=True, slots=True)
class PicturePart:
    """Decodes a stretch of a larger file, such as a member of a tar, when called."""

    path: Path
    member: str
    offset: int
    size: int

    def __call__(self, note: Note | None = None) -> Image.Image:
        """The picture as upright RGB."""
        where = f"{self.path}: {self.member}"
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read(self.size)
        except OSError as error:
            raise DiptychError(f"cannot be read: {error.strerror}", where=where) from None
        return decode(io.BytesIO(data), where, note)


@dataclass(frozen=True, slots=True)
class PictureBytes:
    """Decodes bytes in memory when called."""

    data: bytes
    where: str

    def __call__(self, note: Note | None = None) -> Image.Image:
        """The picture as upright RGB."""
        return decode(io.BytesIO(self.data), self.where, note)
