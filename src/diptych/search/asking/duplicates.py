"""Near duplicates among results: vectors so close that people see the same picture twice."""

import numpy as np

# Closer than this, results are called near duplicates. Chosen on validation pictures with the model that ships: 6 of
# 1,000 of Flickr8k's have another as near and 20 of 1,500 of COCO's, and of copies in a poor JPEG (quality 30) 77 % and
# 99 % are found, where a bound of 0.9 finds 52 % and 92 %. docs/_make/near_duplicates.py measures it for any model.
NEAR = 0.86


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
