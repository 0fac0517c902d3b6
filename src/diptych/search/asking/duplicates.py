"""Near duplicates among results: vectors so close that people see the same picture twice."""

import numpy as np

# Closer than this, results are called near duplicates. Of 1,000 photographs of Flickr8k no two are, with the model that
# ships (the closest have 0.893), of COCO's one in a hundred; copies that are mirrored, or have a twentieth cut off each
# side, nearly all are, and more than half of those in a poor JPEG.
NEAR = 0.9


def group_near(vectors: np.ndarray, near: float = NEAR) -> list[list[int]]:
    """Rows of (n, K, d), best first, in groups: each joins the first group whose leader it nearly equals.

    Two sets nearly equal where the elements of each have a near one in the other, on average.
    """
    groups: list[list[int]] = []
    leaders = np.empty_like(vectors)  # of the groups that there are so far
    for row, own in enumerate(vectors):
        if groups:
            close = closeness(own, leaders[: len(groups)])
            best = int(np.argmax(close >= near))  # the first that is near enough
            if close[best] >= near:
                groups[best].append(row)
                continue
        leaders[len(groups)] = own
        groups.append([row])
    return groups


def closeness(one: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How nearly a set (K, d) equals each of others (n, K, d): (n,), 1 for the same; the cosine where K is 1."""
    cosines = np.einsum("kd,nld->nkl", one, others)
    return np.asarray((cosines.max(2).mean(1) + cosines.max(1).mean(1)) / 2)
