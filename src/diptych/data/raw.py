"""A camera's RAW file: the preview that lies in it, and what it says of itself, through LibRaw."""

import io
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.photo import ORIENTATION, TAKEN, Columns, clean, exif_columns, taken_text

SUFFIXES = frozenset(
    {
        ".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".iiq", ".kdc", ".mef", ".mos", ".mrw", ".nef",
        ".nrw", ".orf", ".pef", ".raf", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f",
    }
)  # fmt: skip
EXTRA = "raw"
# A preview smaller than this is a stamp to leaf through; the picture itself is developed instead.
LEAST_PREVIEW = 320
# LibRaw's turns as EXIF's numbers.
_FLIPS = {0: 1, 3: 3, 5: 8, 6: 6}


@dataclass(frozen=True)
class RawPreview:
    """What a RAW file shows: a picture that may not be decoded yet, how it lies (EXIF's number), and its columns."""

    image: Image.Image
    orientation: int
    columns: Columns


def is_raw(name: str) -> bool:
    """Whether a file name ends like a camera's RAW."""
    return Path(name).suffix.lower() in SUFFIXES


@cache
def raw_is_read() -> bool:
    """Whether RAW files can be read here."""
    return find_spec("rawpy") is not None


def open_raw(path: Path, most_pixels: int) -> RawPreview:
    """The largest preview in a RAW file, or where there is none of use the picture itself at half its size."""
    with _raw(path) as raw:
        columns = _columns(raw, path)
        flip = _FLIPS.get(raw.sizes.flip, 1)
        image = _preview(raw)
        if image is not None and max(image.size) >= min(LEAST_PREVIEW, max(raw.sizes.iwidth, raw.sizes.iheight)):
            return RawPreview(image, _lies(image, flip, raw.sizes.iwidth >= raw.sizes.iheight), columns)
        if raw.sizes.raw_width * raw.sizes.raw_height > most_pixels:
            raise DiptychError(f"the picture is too large to decode safely: at most {most_pixels:,} pixels are decoded")
        pixels = raw.postprocess(half_size=True, use_camera_wb=True)  # which turns it, too
        return RawPreview(Image.fromarray(pixels), 1, columns)


def raw_columns(path: Path) -> Columns:
    """What a RAW file says of itself; nothing is decoded."""
    with _raw(path) as raw:
        return _columns(raw, path)


def _raw(path: Path) -> Any:
    if not raw_is_read():
        raise DiptychError("a camera's RAW file; to read it, install diptych[raw]")
    if not path.is_file():
        raise DiptychError("not a plain file; expected a picture" if path.exists() else "no such picture")
    import rawpy

    try:
        return rawpy.imread(str(path))
    except rawpy.LibRawError as error:
        raise DiptychError(f"not a RAW file that can be read: {_said(error)}") from None


def _preview(raw: Any) -> Image.Image | None:
    """The embedded preview; None where there is none, or none that can be shown."""
    import rawpy

    try:
        preview = raw.extract_thumb()
    except rawpy.LibRawError:
        return None
    if preview.format == rawpy.ThumbFormat.BITMAP:
        return Image.fromarray(preview.data)
    with suppress(Exception):  # Pillow's readers raise all kinds on broken files
        return Image.open(io.BytesIO(preview.data), formats=["JPEG", "MPO"])
    return None


def _lies(image: Image.Image, flip: int, wide: bool) -> int:
    """How a preview lies: as its own EXIF says, else as the RAW does, unless it was turned already.

    wide: whether the sensor is wider than high
    """
    lies = flip
    with suppress(Exception):  # a broken EXIF block
        own = image.getexif().get(ORIENTATION)
        # One that says nothing of how the camera was held may know less than the file that it lies in.
        if isinstance(own, int) and (2 <= own <= 8 or (own == 1 and flip < 5)):
            lies = own
    return 1 if lies >= 5 and (image.height > image.width) == wide and image.height != image.width else lies


def _columns(raw: Any, path: Path) -> Columns:
    columns: Columns = {}
    exif = Image.Exif()
    # Most kinds of RAW are TIFFs; of the others LibRaw knows something.
    with suppress(Exception), path.open("rb") as file:
        exif.load_from_fp(file)
        columns = exif_columns(exif)
    other, lens = getattr(raw, "other", None), getattr(raw, "lens", None)  # which older releases do not tell
    told = {TAKEN: taken_text(getattr(other, "timestamp", None)), "lens": clean(getattr(lens, "model", None))}
    columns |= {name: value for name, value in told.items() if value and name not in columns}
    width, height = raw.sizes.iwidth, raw.sizes.iheight
    if _FLIPS.get(raw.sizes.flip, 1) >= 5:
        width, height = height, width
    return columns | {"width": int(width), "height": int(height)}


def _said(error: Exception) -> str:
    """LibRaw's words, which come as bytes."""
    told = error.args[0] if error.args else ""
    return (told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)) or type(error).__name__
