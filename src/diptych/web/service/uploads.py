"""Pictures that were sent to search with."""

import secrets
from typing import Protocol

from PIL import Image

from diptych.data.pictures import to_rgb
from diptych.web.errors import NotFound
from diptych.web.service.pictures import LARGEST_QUERY, smaller
from diptych.web.service.recent import Recent

PREFIX = "upload-"
MOST_BYTES, MOST_UPLOADS = 128 << 20, 256


def is_upload(id: str) -> bool:
    """Whether an id reads like an upload's; those of entries never do."""
    return id.startswith(PREFIX)


def no_longer() -> NotFound:
    """That there is no upload of this id."""
    return NotFound("there is no such upload any more; send the picture again")


class KeepsUploads(Protocol):
    """Pictures to search with, until others take their place."""

    def keep(self, image: Image.Image) -> str:
        """The id under which it can be had again."""

    def get(self, id: str) -> Image.Image:
        """The picture of an id; an error where it is not kept any more."""


class Uploads:
    """Pictures to search with, in the memory of this process."""

    def __init__(self, most_bytes: int = MOST_BYTES, most: int = MOST_UPLOADS) -> None:
        self._recent: Recent[Image.Image] = Recent(most_bytes, most)

    def keep(self, image: Image.Image) -> str:
        """The id under which it can be had again."""
        id = PREFIX + secrets.token_urlsafe(12)
        image = smaller(to_rgb(image).copy(), LARGEST_QUERY)
        self._recent.put(id, image, 3 * image.width * image.height)
        return id

    def get(self, id: str) -> Image.Image:
        """The picture of an id; an error where it is not kept any more."""
        image = self._recent.get(id)
        if image is None:
            raise no_longer()
        return image

    def __len__(self) -> int:
        return len(self._recent)
