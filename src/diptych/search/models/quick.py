"""Quick forms of a matcher's encoders, taken only where they agree with the encoders themselves."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from diptych.encoders.encoded import Encoded
from diptych.encoders.quick.encoders import QuickImages, QuickTexts, quick_images, quick_texts
from diptych.matchers.base import Matcher

# The mean cosine of an item's vector with the one that the encoder itself gives must be this.
AGREES = 0.99
PROBE_TEXT = "a brown dog runs over green grass with a ball in its mouth"
SENTENCES = (
    "dog",
    PROBE_TEXT,
    "two women and a man in red jackets wait at a crowded station while a yellow train , covered with snow , comes in",
)

Vectors = Callable[[Encoded], np.ndarray]


def agreeing_images(
    matcher: Matcher, folder: Path | None, pixels: Sequence[np.ndarray], expected: np.ndarray, vectors: Vectors
) -> QuickImages | None:
    """The quickest form of the image encoder that makes of prepared pictures what is expected (n, K, d); or None."""

    def agrees(form: QuickImages) -> bool:
        try:
            return _agree(vectors(form(pixels)), expected)
        except Exception:  # a form that fails here, for whatever reason, is as good as none
            return False

    try:
        return next(filter(agrees, quick_images(matcher.image_encoder, folder)), None)
    except Exception:  # as above
        return None


def agreeing_texts(
    matcher: Matcher, ids: Sequence[Tensor], expected: np.ndarray, vectors: Vectors
) -> QuickTexts | None:
    """The same of the text encoder and of sentences' token numbers, (1, pieces) each."""
    try:
        form = quick_texts(matcher.text_encoder)
        if form is None:
            return None
        found = np.concatenate([vectors(form(one)) for one in ids])
        return form if _agree(found, expected) else None
    except Exception:  # as above
        return None


def probe_picture() -> Image.Image:
    """A picture with colours and shapes that is the same everywhere."""
    y, x = np.mgrid[0:256, 0:256]
    disc = ((x - 150) ** 2 + (y - 110) ** 2 < 60**2)[..., None]
    values = np.where(disc, np.array([200, 60, 40]), np.stack([x, y, 255 - x], -1))
    return Image.fromarray(values.astype(np.uint8))


def drawn_pictures() -> list[Image.Image]:
    """Pictures to agree on: shapes on a ground, blotches coarse and fine, and one of one colour."""
    rng = np.random.default_rng(0)
    blotches = [Image.fromarray(rng.integers(0, 256, (k, k, 3), np.uint8)).resize((256, 256)) for k in (4, 12, 40)]
    return [probe_picture(), *blotches, Image.new("RGB", (256, 256), (120, 140, 90))]


def _agree(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether unit vectors (n, K, d) are the same but for little."""
    return found.shape == expected.shape and float((found * expected).sum(-1).mean()) >= AGREES
