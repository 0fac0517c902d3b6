"""Picture files of every kind, decoded to upright RGB; what cannot be decoded is said in one sentence."""

import io
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from diptych.common.errors import DiptychError

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jp2", ".avif"}
)
ORIENTATION = 0x0112  # the EXIF tag; values from 5 on turn the picture on its side
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip
_EXIF = {"exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif"}  # where Pillow looks for it


def is_picture(name: str) -> bool:
    """Whether a file name ends like a picture's."""
    return Path(name).suffix.lower() in SUFFIXES


def decode(source: Path | IO[bytes], where: str) -> Image.Image:
    """The picture in `source`, turned as its EXIF says, as RGB; `where` names it in errors."""
    try:
        try:
            return _decoded(source)
        except UnidentifiedImageError:
            if not heic_is_read():
                raise
            if not isinstance(source, Path):
                source.seek(0)
            return _decoded(source)
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


def _decoded(source: Path | IO[bytes]) -> Image.Image:
    with Image.open(source) as image:
        image.load()
        return to_rgb(upright(image))


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
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def upright(image: Image.Image) -> Image.Image:
    """The picture turned as its EXIF says; the one that is given stays as it is."""
    image.load()  # Pillow turns TIFFs by itself as it loads them
    try:
        turn = _TURNS.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # a broken EXIF block says nothing about the picture itself
        return image
    if turn is None:
        return image
    turned = image.transpose(turn)
    turned.info = {name: value for name, value in image.info.items() if name not in _EXIF}  # else it is turned again
    return turned


def _from_deep_grey(image: Image.Image) -> Image.Image:
    values = np.asarray(image).astype(np.float64)
    top = values.max(initial=0.0)
    if top > 255:
        values = values / 257.0
    elif image.mode == "F" and top <= 1:
        values = values * 255.0
    return Image.fromarray(np.clip(np.rint(np.nan_to_num(values)), 0, 255).astype(np.uint8), "L").convert("RGB")


@dataclass(frozen=True, slots=True)
class PictureFile:
    """Decodes a file when called."""

    path: Path

    def __call__(self) -> Image.Image:
        """The picture as upright RGB."""
        return decode(self.path, str(self.path))


@dataclass(frozen=True, slots=True)
class PicturePart:
    """Decodes a stretch of a larger file, such as a member of a tar, when called."""

    path: Path
    member: str
    offset: int
    size: int

    def __call__(self) -> Image.Image:
        """The picture as upright RGB."""
        where = f"{self.path}: {self.member}"
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read(self.size)
        except OSError as error:
            raise DiptychError(f"cannot be read: {error.strerror}", where=where) from None
        return decode(io.BytesIO(data), where)


@dataclass(frozen=True, slots=True)
class PictureBytes:
    """Decodes bytes in memory when called."""

    data: bytes
    where: str

    def __call__(self) -> Image.Image:
        """The picture as upright RGB."""
        return decode(io.BytesIO(self.data), self.where)
