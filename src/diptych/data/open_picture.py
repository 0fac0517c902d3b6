"""The one way to open a picture, wherever it is: upright, in RGB, and no larger than it must be."""

from pathlib import Path

from PIL import Image

from diptych.data.collection import Open
from diptych.data.photo import ORIENTATION, Note, photo_columns
from diptych.data.pictures import DECODED, PictureBytes, PictureFile, PicturePart, raw_picture, to_rgb, upright
from diptych.data.raw import is_raw

# What people give for a picture: itself, its file, or a function that decodes it.
Picture = Image.Image | str | Path | Open


def open_picture(picture: Picture, side: int | None = None) -> Image.Image:
    """A picture in RGB, turned as its EXIF says; the one that is given stays as it is.

    side: what the picture will be resized to; where it is given, a large JPEG file is decoded smaller
    """
    return open_with_size(picture, side)[0]


def open_with_size(
    picture: Picture, side: int | None = None, note: Note | None = None
) -> tuple[Image.Image, tuple[int, int]]:
    """As `open_picture` gives it, and the width and height of the whole of it; `note` is told what it says of itself.

    A JPEG file that is at least four times `side` is decoded at a half, a quarter or an eighth of its size, never
    below twice `side`: many times faster, and the resizing that follows still averages over every pixel.
    """
    if isinstance(picture, str | Path):
        picture = PictureFile(Path(picture))
    if isinstance(picture, PictureFile) and side is not None:
        reduced = _reduced(picture, side, note)
        if reduced is not None:
            return reduced
    if isinstance(picture, PictureFile | PicturePart | PictureBytes):
        opened = picture(note)
    else:
        opened = picture() if callable(picture) else picture
        if note is not None:
            note(photo_columns(opened))
    image = to_rgb(upright(opened))
    return image, image.size


def _reduced(file: PictureFile, side: int, note: Note | None) -> tuple[Image.Image, tuple[int, int]] | None:
    """None where the whole picture must be decoded, or where decoding failed and the usual way will say why."""
    if not file.path.is_file():
        return None
    try:
        if is_raw(file.path.name):
            return raw_picture(file.path, side, note)
        with Image.open(file.path, formats=["JPEG"]) as image:
            if image.format != "JPEG" or min(image.size) < 4 * side:
                return None
            if note is not None:
                note(photo_columns(image))
            width, height = image.size
            sideways = image.getexif().get(ORIENTATION, 1) >= 5
            image.draft(None, (2 * side, 2 * side))
            with DECODED.decoding(image.width * image.height):
                image.load()
                return to_rgb(upright(image)), (height, width) if sideways else (width, height)
    except Exception:  # Pillow's decoders raise all kinds on broken files
        return None
