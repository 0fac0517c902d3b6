"""Pictures in and out: uploads that are looked at before they are decoded, and small JPEGs of what is in the index."""

import io
import warnings
from collections.abc import Callable
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from diptych.common.errors import DiptychError
from diptych.data.collection import Open
from diptych.data.open_picture import open_picture
from diptych.data.pictures import PictureFile, heic_is_read, to_rgb, upright
from diptych.search.stores.keys import file_of, open_key
from diptych.web.errors import NotFound, TooLarge

# Decoders that need nothing but the picture; others (such as PostScript) start programs.
FORMATS = {
    "JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "TIFF": ".tif", "BMP": ".bmp", "PPM": ".ppm",
    "JPEG2000": ".jp2", "AVIF": ".avif", "HEIF": ".heic", "MPO": ".jpg",
}  # fmt: skip
# A picture that is searched with is kept no larger than this.
LARGEST_QUERY = 1024
LARGEST_SHOWN = 4096
SIZES = {"160": 160, "320": 320, "640": 640, "1280": 1280, "full": LARGEST_SHOWN}


def open_upload(data: bytes, most_pixels: int) -> Image.Image:
    """A picture that was sent, its header read and nothing decoded; an error where it is too large or no picture."""
    if not data:
        raise DiptychError("file: it is empty; expected a picture")
    heic_is_read()
    Image.init()
    formats = [name for name in FORMATS if name in Image.OPEN]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit below is ours
            image = Image.open(io.BytesIO(data), formats=formats)
    except Image.DecompressionBombError:
        raise TooLarge(f"file: the picture has too many pixels; at most {most_pixels:,} are taken") from None
    except UnidentifiedImageError:
        raise DiptychError("file: not a picture of a known format") from None
    except Exception as error:  # Pillow's readers raise all kinds on broken files
        raise DiptychError(f"file: the picture cannot be read: {error or type(error).__name__}") from None
    if image.width * image.height > most_pixels:
        raise TooLarge(
            f"file: the picture has {image.width} x {image.height} pixels; at most {most_pixels:,} are taken"
        )
    return image


def read_upload(data: bytes, most_pixels: int) -> Image.Image:
    """A picture that was sent, upright in RGB, made smaller where it is larger than searching needs."""
    image = open_upload(data, most_pixels)
    try:
        if image.format == "JPEG":
            image.draft(None, (LARGEST_QUERY, LARGEST_QUERY))
        image.load()
        image = to_rgb(upright(image))
    except Exception as error:  # as above
        raise DiptychError(f"file: the picture cannot be decoded: {error or type(error).__name__}") from None
    return smaller(image, LARGEST_QUERY)


def smaller(image: Image.Image, side: int) -> Image.Image:
    """The picture with its longer side at most `side`."""
    if max(image.size) > side:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return image


def opener(key: str, resolve: Callable[[str], str]) -> Open:
    """What decodes the picture of a key, from the file that `resolve` allows."""
    real = resolve(key)
    file = file_of(key)
    if file == key:
        return PictureFile(Path(real))
    renamed = real + key[len(file) :]
    if file_of(renamed) != real:  # a link with another ending: no archive any more
        raise NotFound("there is no picture to show of this entry")
    return open_key(renamed)


def jpeg_of(source: Open, size: str) -> bytes:
    """A picture as a JPEG whose longer side is at most one of `SIZES`, without anything but its pixels."""
    side = SIZES[size]
    image = smaller(open_picture(source, side), side)
    data = io.BytesIO()
    image.save(data, "JPEG", quality=92 if size == "full" else 85)
    return data.getvalue()
