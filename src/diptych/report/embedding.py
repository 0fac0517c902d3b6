"""Where pictures and sentences lie: t-SNE of what is kept of them, as in DivE's figure A1."""

from dataclasses import dataclass

import numpy as np
import torch

from diptych.common.errors import DiptychError
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
    each = matcher.points(subject.images[:1])[0].shape[1]
    pictures = draw(len(subject.collection), max(2, POINTS // (2 * each)), seed)
    rng = np.random.default_rng(seed)
    sentences = [int(rng.choice(np.flatnonzero(subject.owners == picture))) for picture in pictures]
    sides, what = [], ""
    for kept, chosen in ((subject.images, pictures), (subject.texts, sentences)):
        vectors, what = matcher.points(kept[torch.tensor(list(chosen))])
        sides.append(vectors.cpu().numpy())
    points = np.concatenate([side.reshape(-1, side.shape[-1]) for side in sides])
    items = np.concatenate([np.repeat(chosen, each) for chosen in (pictures, sentences)])
    slots = np.tile(np.arange(each), len(pictures) + len(sentences))
    texts = np.repeat([False, True], [len(pictures) * each, len(sentences) * each])
    return Embedding(tsne(points, seed), items, slots, texts, each, what)


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
