"""Pictures that were sent to search with, in a folder, so that every worker process finds them."""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from PIL import Image

from diptych.common.files import written_aside
from diptych.data.pictures import to_rgb
from diptych.web.service.pictures import LARGEST_QUERY, smaller
from diptych.web.service.uploads import MOST_BYTES, MOST_UPLOADS, PREFIX, no_longer


class SharedUploads:
    """Like `Uploads`, but every picture is a file that holds its pixels as they are, until others take its place."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES, most: int = MOST_UPLOADS) -> None:
        self._folder = folder
        self._most_bytes, self._most = most_bytes, most

    def keep(self, image: Image.Image) -> str:
        """The id under which it can be had again, of any worker."""
        id = PREFIX + secrets.token_urlsafe(12)
        image = smaller(to_rgb(image).copy(), LARGEST_QUERY)
        with written_aside(self._folder / id) as aside:
            image.save(aside, "PPM")
        self._make_room()
        return id

    def get(self, id: str) -> Image.Image:
        """The picture of an id; an error where it is not kept any more."""
        name = id.removeprefix(PREFIX)
        if not name.replace("-", "").replace("_", "").isalnum():  # nothing that a client sends becomes a path
            raise no_longer()
        path = self._folder / f"{PREFIX}{name}"
        try:
            os.utime(path)  # the last used
            with Image.open(path, formats=["PPM"]) as image:
                image.load()
                return image.copy()
        except OSError:
            raise no_longer() from None

    def __len__(self) -> int:
        return len(self._files())

    def _files(self) -> list[Path]:
        return list(self._folder.glob(f"{PREFIX}*"))

    def _make_room(self) -> None:
        """Those that were not used for longest go; another worker may be doing the same."""
        sized = sorted(_looked(path.stat, path) for path in self._files() if path.exists())
        total = sum(size for _, size, _ in sized)
        for place, (_, size, path) in enumerate(sized[:-1]):
            if len(sized) - place <= self._most and total <= self._most_bytes:
                return
            with suppress(OSError):
                path.unlink(missing_ok=True)
            total -= size


def _looked(stat: Callable[[], os.stat_result], path: Path) -> tuple[int, int, Path]:
    try:
        status = stat()
    except OSError:
        return 0, 0, path
    return status.st_mtime_ns, status.st_size, path
