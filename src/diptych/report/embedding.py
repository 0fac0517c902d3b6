"""Where pictures and sentences lie: t-SNE of what is kept of them, as in DivE's figure A1."""

from dataclasses import dataclass

import numpy as np
import torch

from diptych.common.errors import DiptychError
from diptych.encoders.encoded import l2
from diptych.matchers.dive import DivE
from diptych.matchers.kept import Kept
from diptych.matchers.mmca import MMCAKept
from diptych.report.subject import Subject, draw

POINTS = 800


@dataclass(frozen=True, eq=False)
class Embedding:
    """Points of a map.

    places: (points, 2); items: (points,), position of its picture or sentence; slots: (points,), from 0
    texts: (points,) bool, whether it is a sentence's
    count: slots an item; what: what a point is, for people
    """

    places: np.ndarray
    items: np.ndarray
    slots: np.ndarray
    texts: np.ndarray
    count: int
    what: str


def embed(subject: Subject, seed: int = 0) -> Embedding:
    """A map of pictures, drawn with the seed, each with one of its sentences: 800 points at most."""
    matcher = subject.matcher
    sets = isinstance(matcher, DivE)
    each = matcher.config.slots if isinstance(matcher, DivE) else 1
    pictures = draw(len(subject.collection), max(2, POINTS // (2 * each)), seed)
    rng = np.random.default_rng(seed)
    sentences = [int(rng.choice(np.flatnonzero(subject.owners == picture))) for picture in pictures]
    sides, what = [], "an element of a set" if sets else ""
    for kept, chosen in ((subject.images, pictures), (subject.texts, sentences)):
        vectors, name = vectors_of(kept[torch.tensor(list(chosen))], each if sets else None)
        what = what or name
        sides.append(vectors)
    points = np.concatenate([side.reshape(-1, side.shape[-1]) for side in sides])
    items = np.concatenate([np.repeat(chosen, each) for chosen in (pictures, sentences)])
    slots = np.tile(np.arange(each), len(pictures) + len(sentences))
    texts = np.repeat([False, True], [len(pictures) * each, len(sentences) * each])
    return Embedding(tsne(points, seed), items, slots, texts, each, what)


def vectors_of(kept: Kept, slots: int | None) -> tuple[np.ndarray, str]:
    """Unit vectors that stand for items (n, slots or 1, d), and what they are."""
    if slots is not None:
        return l2(kept.vectors[:, :slots].float()).cpu().numpy(), "an element of a set"
    if isinstance(kept, MMCAKept):
        return l2(kept.whole.float()).unsqueeze(1).cpu().numpy(), "the global vector of a picture or sentence"
    if kept.vectors.shape[1] == 1:
        return l2(kept.vectors.float()).cpu().numpy(), "the vector of a picture or sentence"
    weights = kept.mask.float() / kept.lengths.clamp(min=1).unsqueeze(1)
    mean = (kept.vectors.float() * weights.unsqueeze(-1)).sum(1, keepdim=True)
    return l2(mean).cpu().numpy(), "the mean of a picture's regions or of a sentence's words, before they meet"


def tsne(points: np.ndarray, seed: int = 0) -> np.ndarray:
    """A map of vectors (n, d) in the plane, (n, 2), the same every time."""
    if len(points) < 8:
        raise DiptychError(f"t-SNE: {len(points)} points are too few for a map")
    try:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        raise DiptychError("t-SNE needs scikit-learn; install diptych[report]") from None
    perplexity = min(30.0, (len(points) - 1) / 3)
    # One thread: the order in which several add up is not fixed.
    with threadpool_limits(1):
        model = TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=1)
        places: np.ndarray = model.fit_transform(points.astype(np.float32))
    return places.astype(np.float64)
