import io
import struct
import zlib

import pytest
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.web.errors import TooLarge
from diptych.web.service.pictures import LARGEST_QUERY, jpeg_of, open_upload, read_upload
from tests.encoders.pictures import picture


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def huge_png(width: int, height: int) -> bytes:
    """A few hundred bytes that say they are a large picture; whoever decodes them needs all of its memory."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("size", [(100, 101), (20_000, 20_000), (60_000, 60_000), (2_000_000_000, 1)])
def test_too_many_pixels_are_refused_before_they_are_decoded(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def decoded(*_: object) -> None:
        raise AssertionError("a picture was decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", decoded)
    with pytest.raises(TooLarge, match="at most 10,000 are taken"):
        read_upload(huge_png(*size), 10_000)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "PPM"])
def test_pictures_of_many_kinds_are_read(kind: str) -> None:
    image = read_upload(encoded(picture(50, 30), kind), 1500)
    assert (image.mode, image.size) == ("RGB", (50, 30))


def test_what_starts_programs_is_not_read() -> None:
    with pytest.raises(DiptychError, match="not a picture of a known format"):
        read_upload(encoded(picture(), "EPS"), 10**6)


@pytest.mark.parametrize("data", [b"", b"x", b"%PDF-1.4", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff" * 9])
def test_what_is_no_picture_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(DiptychError, match=r"^file: "):
        read_upload(data, 10**6)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_pictures_that_are_cut_off_are_refused(kind: str) -> None:
    whole = encoded(picture(200, 150, seed=2), kind)
    with pytest.raises(DiptychError, match=r"^file: "):
        read_upload(whole[: len(whole) // 2], 10**6)


def test_large_ones_become_small_and_are_turned() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    image = read_upload(encoded(picture(3000, 1500), "JPEG", exif=exif), 10**7)
    assert image.size == (LARGEST_QUERY // 2, LARGEST_QUERY)
    assert open_upload(encoded(picture(3000, 1500), "JPEG"), 10**7).size == (3000, 1500)


def test_shown_pictures_have_nothing_but_pixels() -> None:
    exif = Image.Exif()
    exif[0x010E] = "where I live"
    source = Image.open(io.BytesIO(encoded(picture(900, 600), "JPEG", exif=exif)))
    data = jpeg_of(source.copy, "320")
    shown = Image.open(io.BytesIO(data))
    assert (shown.format, shown.size, dict(shown.getexif())) == ("JPEG", (320, 213), {})
    assert b"where I live" not in data
