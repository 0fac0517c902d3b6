"""Evaluate anything that gives scores: a matrix, files of vectors, a matcher on a collection, or several runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection
from diptych.evaluation.encode import encode_collection
from diptych.evaluation.ensemble import EnsembleSource
from diptych.evaluation.positives import even_owners
from diptych.evaluation.protocols import check_protocol, evaluate_source, fit_collection
from diptych.evaluation.result import Evaluation
from diptych.evaluation.sources import (
    EmbeddingSource,
    MatcherSource,
    MatrixSource,
    ScoreSource,
    block_source,
    read_vectors,
)
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept

Ids = Sequence[str] | None


def evaluate_scores(
    scores: Any, owners: Any = None, protocol: str = "all-pairs", image_ids: Ids = None, sentence_ids: Ids = None
) -> Evaluation:
    """Evaluate scores (pictures, sentences): an array, a tensor, an .npy file, or blocks of them.

    owners: (sentences,) the picture of each sentence; without it, every picture has equally many, one after the other
    image_ids, sentence_ids: needed by `eccv` and `cxc`, and by comparisons of runs
    Blocks (pictures' slice, sentences' positions, scores) need `owners`, and every picture needs a sentence or an id.

    >>> evaluate_scores(np.eye(4))["rsum"]  # four pictures with one sentence each
    600.0
    """
    if isinstance(scores, str | Path):
        try:
            scores = np.load(scores, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DiptychError(f"expected an .npy file of scores: {error}", where=scores) from None
    source: ScoreSource
    if isinstance(scores, Iterable) and not isinstance(scores, Tensor | np.ndarray | list | tuple):
        if owners is None:
            raise DiptychError("owners: blocks of scores need the picture of each sentence")
        images = int(np.max(owners)) + 1 if image_ids is None else len(image_ids)
        source = block_source(scores, (images, len(owners)))
    else:
        source = MatrixSource(scores)
    owners = even_owners(*source.shape) if owners is None else owners
    return evaluate_source(source, owners, protocol, image_ids, sentence_ids)


def evaluate_embeddings(
    images: Any,
    texts: Any,
    owners: Any = None,
    protocol: str = "all-pairs",
    similarity: Literal["cosine", "dot"] = "cosine",
    image_ids: Ids = None,
    sentence_ids: Ids = None,
) -> Evaluation:
    """Evaluate vectors (pictures, d) and (sentences, d): arrays, tensors, .npy files, or what VSE keeps.

    owners: as in `evaluate_scores`. Files that repeat each picture's row for its five sentences are taken as such.

    >>> evaluate_embeddings(np.eye(4), np.eye(4))["t2i/r@1"]
    100.0
    """
    v, s = read_vectors(images, "images"), read_vectors(texts, "texts")
    if owners is None and len(v) == len(s) and len(v) % 5 == 0 and len(v) > 0:
        rows = v.reshape(len(v) // 5, 5, -1)
        if bool((rows == rows[:, :1]).all()):
            v = v[::5]
    if similarity == "cosine":
        v, s = F.normalize(v, dim=1), F.normalize(s, dim=1)
    elif similarity != "dot":
        raise DiptychError(f"similarity: {similarity!r} does not exist; expected 'cosine' or 'dot'")
    source = EmbeddingSource(v, s.to(v.device))
    owners = even_owners(*source.shape) if owners is None else owners
    return evaluate_source(source, owners, protocol, image_ids, sentence_ids)


def evaluate_kept(
    matcher: Matcher,
    images: Kept,
    texts: Kept,
    owners: Any,
    protocol: str = "all-pairs",
    image_ids: Ids = None,
    sentence_ids: Ids = None,
    memory: int | None = None,
    dtype: torch.dtype | None = None,
) -> Evaluation:
    """Evaluate a matcher on what it kept of pictures and sentences; `owners` (sentences,), the picture of each.

    memory: bytes that scoring may take; dtype: what large products are computed in, float32 without it

    >>> evaluate_kept(matcher, images, texts, owners=[0, 1, 2])["i2t/r@5"]
    100.0
    """
    owners = np.asarray(owners)
    source = MatcherSource(matcher, images, texts, memory, "scoring", dtype)
    result = evaluate_source(source, owners, protocol, image_ids, sentence_ids)
    with matcher.inference():
        figures = matcher.pair_figures(images, texts, torch.from_numpy(owners))
    return result.with_figures(figures) if figures else result


def evaluate_matcher(
    matcher: Matcher,
    collection: Collection,
    protocol: str = "all-pairs",
    batch_size: int = 64,
    memory: int | None = None,
    dtype: torch.dtype | None = None,
) -> Evaluation:
    """Evaluate a matcher on a collection; batch_size: pictures encoded at once; memory, dtype: as `evaluate_kept`.

    >>> result = evaluate_matcher(matcher, collection)
    >>> result.images, result.sentences, result["t2i/r@5"]
    (3, 6, 100.0)
    """
    check_protocol(protocol)
    collection, notes = fit_collection(collection, protocol)
    kept = encode_collection(matcher, collection, batch_size, near=True, memory=memory)
    owners = collection.captions()[1]
    result = evaluate_kept(matcher, *kept, owners, protocol, *collection_ids(collection), memory, dtype)
    return result.described(data=collection.name, notes=[*notes, *rounded(dtype)])


def evaluate_ensemble(
    matchers: Sequence[Matcher],
    collection: Collection,
    protocol: str = "all-pairs",
    batch_size: int = 64,
    memory: int | None = None,
    dtype: torch.dtype | None = None,
) -> Evaluation:
    """Evaluate the mean of several matchers' scores on a collection.

    >>> evaluate_ensemble([matcher, matcher], collection)["rsum"] == evaluate_matcher(matcher, collection)["rsum"]
    True
    """
    check_protocol(protocol)
    collection, notes = fit_collection(collection, protocol)
    members = []
    for matcher in matchers:
        kept = encode_collection(matcher, collection, batch_size, near=True, memory=memory)
        members.append(MatcherSource(matcher, *kept, memory, dtype=dtype))
    result = evaluate_source(EnsembleSource(members), collection.captions()[1], protocol, *collection_ids(collection))
    return result.described(data=collection.name, notes=[*notes, *rounded(dtype)])


def rounded(dtype: torch.dtype | None) -> list[str]:
    """What is told of scores that are not float32's."""
    half = dtype in (torch.bfloat16, torch.float16)
    return [f"scores were computed in {str(dtype).removeprefix('torch.')}"] if half else []


def collection_ids(collection: Collection) -> tuple[list[str], list[str]]:
    """The ids of all pictures and of all sentences, in order."""
    return [item.id for item in collection.items], [s.id for item in collection.items for s in item.sentences]
