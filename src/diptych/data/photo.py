"""What a photograph says of itself: when, with what and where it was taken, and how large it is."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from PIL import ExifTags, Image

Columns = dict[str, str | float]
# Is told what an opened picture says of itself, before its pixels are decoded.
Note = Callable[[Columns], None]

# When it was taken, as `2019-07-04T12:30:00`: the clock of the camera, in whatever zone that was.
TAKEN = "taken"
TAKEN_FORM = "%Y-%m-%dT%H:%M:%S"
# The columns that a picture may have by itself.
COLUMNS = (TAKEN, "camera", "lens", "latitude", "longitude", "width", "height", "bytes")

ORIENTATION = 0x0112  # the EXIF tag; values from 5 on turn the picture on its side
LONGEST = 200
_EXIF_DATE = "%Y:%m:%d %H:%M:%S"


def photo_columns(image: Image.Image) -> Columns:
    """What a picture that is opened, and perhaps not decoded yet, says of itself; a broken EXIF block says nothing.

    Width and height are those of the upright picture.

    >>> photo_columns(Image.open("dog.png"))
    {'width': 60, 'height': 40}
    """
    width, height = image.size
    # Where a PNG's EXIF stands behind its pixels, Pillow would decode them all to find it.
    exif = Image.Exif() if image.format == "PNG" and "exif" not in image.info else _exif(image)
    # The sides of a TIFF are turned already.
    if image.format != "TIFF" and _number(exif, ORIENTATION, 1) in (5, 6, 7, 8):
        width, height = height, width
    return {**exif_columns(exif), "width": width, "height": height}


def exif_columns(exif: Image.Exif) -> Columns:
    """Time, camera, lens and place of an EXIF block; what it does not hold, or not readably, is left out."""
    columns: Columns = {}
    details, place = _directory(exif, ExifTags.IFD.Exif), _directory(exif, ExifTags.IFD.GPSInfo)
    for tag in (ExifTags.Base.DateTimeOriginal, ExifTags.Base.DateTimeDigitized):
        taken = taken_text(details.get(tag))
        if taken:
            columns[TAKEN] = taken
            break
    camera = camera_name(_text(exif, ExifTags.Base.Make), _text(exif, ExifTags.Base.Model))
    if camera:
        columns["camera"] = camera
    lens = _text(details, ExifTags.Base.LensModel)
    if lens:
        columns["lens"] = lens
    latitude = _degrees(place, ExifTags.GPS.GPSLatitude, ExifTags.GPS.GPSLatitudeRef, "S", 90)
    longitude = _degrees(place, ExifTags.GPS.GPSLongitude, ExifTags.GPS.GPSLongitudeRef, "W", 180)
    # Cameras that found no satellite write 0, 0, which is a place in the sea.
    if latitude is not None and longitude is not None and (latitude or longitude):
        columns |= {"latitude": latitude, "longitude": longitude}
    return columns


def camera_name(make: str, model: str) -> str:
    """A camera's name from its maker and model, without the maker's name twice.

    >>> camera_name("NIKON CORPORATION", "NIKON D850"), camera_name("Apple", "iPhone 15")
    ('NIKON D850', 'Apple iPhone 15')
    """
    if not model or not make:
        return model or make
    same = make.split()[0].lower() == model.split()[0].lower()
    return model if same else f"{make} {model}"


def taken_text(value: Any) -> str | None:
    """A moment, or EXIF's text of one, as `taken` keeps it; None where it is none."""
    moment = value
    if isinstance(value, str):
        moment = None
        with suppress(ValueError):
            moment = datetime.strptime(value.strip("\x00 ")[:19], _EXIF_DATE)
    # No photograph is older; a clock that was never set says the year 0 or 1.
    return moment.strftime(TAKEN_FORM) if isinstance(moment, datetime) and moment.year > 1800 else None


def clean(value: Any) -> str:
    """Text of a file's header as it can be kept: printable, on one line, not endless."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        return ""
    value = value.partition("\x00")[0].encode("utf-8", "replace").decode()
    return " ".join("".join(c if c.isprintable() else " " for c in value).split())[:LONGEST]


def _exif(image: Image.Image) -> Image.Exif:
    try:
        return image.getexif()
    except Exception:  # Pillow's readers raise all kinds on broken files
        return Image.Exif()


def _directory(exif: Image.Exif, which: int) -> Mapping[int, Any]:
    try:
        return dict(exif.get_ifd(which))
    except Exception:  # as above
        return {}


def _text(tags: Mapping[int, Any], tag: int) -> str:
    try:
        return clean(tags.get(tag))
    except Exception:  # values are read as they are asked for
        return ""


def _number(tags: Mapping[int, Any], tag: int, default: int) -> int:
    try:
        return int(tags.get(tag, default))
    except Exception:  # as above
        return default


def _degrees(place: Mapping[int, Any], tag: int, side: int, negative: str, most: float) -> float | None:
    """Degrees, minutes and seconds as one number; None where they are not there or impossible."""
    try:
        degrees, minutes, seconds = (float(part) for part in place[tag])
        value = degrees + minutes / 60 + seconds / 3600
    except Exception:  # missing, of another type, or a fraction over 0
        return None
    if not math.isfinite(value) or not 0 <= value <= most:
        return None
    return round(-value if _text(place, side).upper().startswith(negative) else value, 6)
