"""Pictures that were sent to search with."""

import secrets

from PIL import Image

from diptych.data.pictures import to_rgb
from diptych.web.errors import NotFound
from diptych.web.service.pictures import LARGEST_QUERY, smaller
from diptych.web.service.recent import Recent

_PREFIX = "upload-"


def is_upload(id: str) -> bool:
    """Whether an id reads like an upload's; those of entries never do."""
    return id.startswith(_PREFIX)


class Uploads:
    """Pictures to search with, in memory, until others take their place."""

    def __init__(self, most_bytes: int = 128 << 20, most: int = 256) -> None:
        self._recent: Recent[Image.Image] = Recent(most_bytes, most)

    def keep(self, image: Image.Image) -> str:
        """The id under which it can be had again."""
        id = _PREFIX + secrets.token_urlsafe(12)
        image = smaller(to_rgb(image).copy(), LARGEST_QUERY)
        self._recent.put(id, image, 3 * image.width * image.height)
        return id

    def get(self, id: str) -> Image.Image:
        """The picture of an id; an error where it is not kept any more."""
        image = self._recent.get(id)
        if image is None:
            raise NotFound("there is no such upload any more; send the picture again")
        return image

    def __len__(self) -> int:
        return len(self._recent)
