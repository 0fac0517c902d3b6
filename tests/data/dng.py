"""A small DNG, written by hand: a Bayer picture, an embedded JPEG preview, and EXIF."""

import io
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

BYTE, ASCII, SHORT, LONG, SRATIONAL = 1, 2, 3, 4, 10
FORMS = {BYTE: "B", ASCII: "B", SHORT: "H", LONG: "I", SRATIONAL: "i"}
Tag = tuple[int, int, tuple[int, ...]]
WIDTH, HEIGHT = 64, 48


def words(text: str) -> tuple[int, ...]:
    return tuple(text.encode() + b"\0")


EXIF: tuple[Tag, ...] = ((36867, ASCII, words("2019:07:04 12:30:00")), (42036, ASCII, words("Fine Lens 50mm")))


def directory(tags: Sequence[Tag], at: int) -> bytes:
    """A directory of a TIFF file that stands at an offset, with the values that do not fit into it behind it."""
    body, extra = b"", b""
    beyond = at + 2 + 12 * len(tags) + 4
    for number, kind, values in sorted(tags):
        data = struct.pack(f"<{len(values)}{FORMS[kind]}", *values)
        count = len(values) // 2 if kind == SRATIONAL else len(values)
        if len(data) > 4:
            place = struct.pack("<I", beyond + len(extra))
            extra += data + b"\0" * (len(data) % 2)
        else:
            place = data.ljust(4, b"\0")
        body += struct.pack("<HHI", number, kind, count) + place
    return struct.pack("<H", len(tags)) + body + struct.pack("<I", 0) + extra


def write_dng(path: Path, preview: Image.Image | None, orientation: int = 1, exif: Sequence[Tag] = EXIF) -> Path:
    """A DNG of a grey picture of 64 x 48, whose preview is another one; all that LibRaw asks of one."""
    data = io.BytesIO()
    if preview is not None:
        preview.save(data, "JPEG", quality=92)
    parts = [b"II*\0" + bytes(4)]

    def place(part: bytes) -> int:
        at = sum(map(len, parts))
        parts.append(part + b"\0" * (len(part) % 2))
        return at

    def here() -> int:
        return sum(map(len, parts))

    bayer = np.full((HEIGHT, WIDTH), 9000, "<u2").tobytes()
    jpeg_at, raw_at = place(data.getvalue()), place(bayer)
    exif_at = place(directory(exif, here()))
    main: list[Tag] = [
        (254, LONG, (0,)), (256, LONG, (WIDTH,)), (257, LONG, (HEIGHT,)), (258, SHORT, (16,)), (259, SHORT, (1,)),
        (262, SHORT, (32803,)), (271, ASCII, words("Testmaker")), (272, ASCII, words("Testmaker One")),
        (273, LONG, (raw_at,)), (274, SHORT, (orientation,)), (277, SHORT, (1,)), (278, LONG, (HEIGHT,)),
        (279, LONG, (len(bayer),)), (33421, SHORT, (2, 2)), (33422, BYTE, (0, 1, 1, 2)), (34665, LONG, (exif_at,)),
        (50706, BYTE, (1, 4, 0, 0)), (50708, ASCII, words("Testmaker One")), (50717, LONG, (16383,)),
        (50721, SRATIONAL, (1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1)),
    ]  # fmt: skip
    if preview is not None:
        width, height = preview.size
        sub: list[Tag] = [
            (254, LONG, (1,)), (256, LONG, (width,)), (257, LONG, (height,)), (258, SHORT, (8, 8, 8)),
            (259, SHORT, (7,)), (262, SHORT, (6,)), (273, LONG, (jpeg_at,)), (277, SHORT, (3,)),
            (278, LONG, (height,)), (279, LONG, (len(data.getvalue()),)),
        ]  # fmt: skip
        main.append((330, LONG, (place(directory(sub, here())),)))
    main_at = place(directory(main, here()))
    parts[0] = b"II*\0" + struct.pack("<I", main_at)
    path.write_bytes(b"".join(parts))
    return path
