"""Two stages judged as one: a fast matcher ranks all, a slow one rescores the best of each query.

CAMP's supplement, section 3: the first stage keeps the top 10 % of pictures (or sentences), and CAMP orders them anew;
what is below stays where the first stage put it. In the paper CAMP alone decides (`replace`); the sum of both models'
scores was better wherever it was measured.
"""

import math
import time
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection
from diptych.evaluation.encode import encode_collection
from diptych.evaluation.evaluate import collection_ids, evaluate_kept
from diptych.evaluation.figures import with_ranges
from diptych.evaluation.protocols import rank_results
from diptych.evaluation.ranks import Ranks
from diptych.evaluation.result import Evaluation
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.scoring import score_candidates, top_k_both
from diptych.scoring.fusion import Fusion, fuse

Side = Literal["images", "texts"]


def evaluate_reranked(
    fast: Matcher,
    slow: Matcher,
    collection: Collection,
    depth: float = 0.1,
    batch_size: int = 64,
    fusion: Fusion = "sum",
) -> Evaluation:
    """Recall of `fast` with the top `depth` of each query rescored by `slow`, and the seconds that each stage took.

    seconds/first: ranking everything with the fast matcher, both ways; seconds/second: rescoring, both ways

    >>> result = evaluate_reranked(matcher, other, collection, depth=0.5)
    >>> "seconds/second" in result.figures
    True
    """
    if not 0 < depth <= 1:
        raise DiptychError(f"depth: expected a part above 0 and at most 1, got {depth}")
    owners = collection.captions()[1]
    begun = time.perf_counter()
    kept = encode_collection(fast, collection, batch_size)
    encoded = time.perf_counter()
    first = evaluate_kept(fast, *kept, owners)
    for_texts, for_images = top_k_both(fast, *kept, *(math.ceil(depth * len(side)) for side in kept))
    candidates: dict[Side, tuple[Tensor, Tensor]] = {"texts": for_texts, "images": for_images}
    ranked = time.perf_counter()
    images, texts = encode_collection(slow, collection, batch_size)
    slow_encoded = time.perf_counter()
    positions = torch.from_numpy(owners)

    def rescored(queries: Kept, items: Kept, query: Side) -> Tensor:
        scores, places = candidates[query]
        second = score_candidates(slow, queries, items, places, query)
        return torch.from_numpy(fuse(scores.numpy(), second.numpy(), fusion))

    i2t = reranked_ranks(
        first,
        "i2t",
        rescored(images, texts, "images"),
        positions[candidates["images"][1]] == torch.arange(len(images)).unsqueeze(1),
    )
    t2i = reranked_ranks(
        first,
        "t2i",
        rescored(texts, images, "texts"),
        candidates["texts"][1] == positions.unsqueeze(1),
    )
    done = time.perf_counter()
    figures, ranges = with_ranges([(i2t, t2i)])
    figures |= {
        "seconds/first": ranked - encoded,
        "seconds/second": done - slow_encoded,
        "seconds/encoding": encoded - begun + slow_encoded - ranked,
    }
    image_ids, sentence_ids = collection_ids(collection)
    per_query = rank_results(i2t, t2i, owners)
    per_query |= {"image_ids": np.array(image_ids), "sentence_ids": np.array(sentence_ids)}
    return Evaluation("all-pairs", figures, ranges, len(images), len(texts), per_query, data=collection.name)


def reranked_ranks(first: Evaluation, direction: str, scores: Tensor, right: Tensor) -> Ranks:
    """Ranks among the rescored candidates where a right one is there, else the first stage's.

    scores: (q, k), by both stages; right: (q, k), which candidates belong to the query
    A picture without sentences has no right answer, and no rank: it is no query, as in the first stage.
    """
    asked = first.per_query[f"{direction}/query"]
    scores, right = scores[asked], right[asked]
    best = scores.masked_fill(~right, -torch.inf).amax(1, keepdim=True)
    there = right.any(1).numpy()
    above = ((scores > best) & ~right).sum(1).numpy()
    level = ((scores == best) & ~right).sum(1).numpy()
    # A query whose right answers were not kept cannot come before what was.
    floor = scores.shape[1] + 1
    optimistic = np.where(there, above + 1, np.maximum(first.per_query[f"{direction}/optimistic"], floor))
    pessimistic = np.where(there, above + level + 1, np.maximum(first.per_query[f"{direction}/pessimistic"], floor))
    return Ranks(asked, np.zeros(len(scores), dtype=np.int64), optimistic, pessimistic)
