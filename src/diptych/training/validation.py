"""How good a matcher is by now: the figures of each validation set, and their means."""

from collections.abc import Sequence

from diptych.data.collection import Collection
from diptych.data.join import distinct_names
from diptych.evaluation.evaluate import evaluate_matcher
from diptych.matchers.base import Matcher


def validate(matcher: Matcher, sets: Sequence[Collection]) -> dict[str, float]:
    """The figures of one set; of several, each set's with its name in front, and their means without."""
    found = [evaluate_matcher(matcher, part).figures for part in sets]
    if len(found) == 1:
        return found[0]
    means = {key: sum(figures[key] for figures in found) / len(found) for key in found[0]}
    named = {
        f"{name}/{key}": value
        for name, figures in zip(distinct_names(sets), found, strict=True)
        for key, value in figures.items()
    }
    return means | named
