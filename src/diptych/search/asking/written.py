"""Pictures found by what is written in them, beside those found by what they show."""

import re
from collections.abc import Sequence

from diptych.search.asking.query import SearchQuery

# How much the first places of both lists count before later ones; as in re-ranking by ranks.
DAMPING = 60
# Words that say nothing of what is written.
_COMMON = frozenset(
    "a an the of in on at to for by from with without and or not no is are was were be it its this that these those "
    "there here i you he she we they my your his her our their some any one who which what where when how as into over "
    "under near left right up down written says saying reads reading text word words".split()
)
_WORD = re.compile(r"\w+")


def written_words(query: SearchQuery) -> list[str]:
    """The words of a query that may be written in a picture; none where it looks for more than sentences."""
    wanted = [term for term in query.terms if term.weight > 0]
    if not all(isinstance(term.value, str) for term in wanted):
        return []
    words = [word for term in wanted for word in _WORD.findall(str(term.value).lower())]
    return list(dict.fromkeys(word for word in words if word not in _COMMON))


def merged(shown: Sequence[int], written: Sequence[int]) -> list[int]:
    """Two rankings of the same things as one, by reciprocal ranks; of equals, what is written comes first.

    >>> merged([1, 2, 3], [3, 4])
    [3, 1, 4, 2]
    """
    scores: dict[int, float] = {}
    for ranking in (written, shown):
        for place, item in enumerate(ranking):
            scores[item] = scores.get(item, 0.0) + 1 / (DAMPING + place + 1)
    return sorted(scores, key=lambda item: -scores[item])
