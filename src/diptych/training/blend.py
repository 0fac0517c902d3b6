"""One matcher from several of the same make: the weighted mean of their weights.

Runs that began with the same weights and went different ways often lie around a better point than any of them.
"""

import math
from collections.abc import Sequence

import torch

from diptych.common.config import to_tree
from diptych.common.errors import DiptychError
from diptych.matchers.base import Matcher


def blend(sources: Sequence[str], shares: Sequence[float]) -> Matcher:
    """A matcher whose weights are the mean of the sources', each counting for its share of the shares' sum.

    sources: runs, folders of saved matchers, or names; all of one configuration

    >>> matcher = blend(["model", "model"], [3, 1])
    >>> matcher.title
    'VSE'
    """
    if len(sources) != len(shares):
        raise DiptychError(f"shares: expected one for each of {len(sources)} models, got {len(shares)}")
    if not sources:
        raise DiptychError("expected at least one model")
    wrong = next((share for share in shares if not (math.isfinite(share) and share > 0)), None)
    if wrong is not None:
        raise DiptychError(f"shares: expected numbers above 0, got {wrong}")
    mixed = Matcher.from_pretrained(sources[0])
    if getattr(mixed.config, "hubs", None) is not None:
        raise DiptychError("its hubs are levelled, which no mean is; blend models first, then level", where=sources[0])
    tree, words = to_tree(mixed.config), mixed.tokenizer.ids(PROBE)
    weights = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in _floats(mixed).items()}
    for source, share in zip(sources, shares, strict=True):
        matcher = Matcher.from_pretrained(source)
        if to_tree(matcher.config) != tree:
            raise DiptychError(f"has another configuration than {sources[0]}; expected the same", where=source)
        if matcher.tokenizer.ids(PROBE) != words:
            raise DiptychError(f"has other words than {sources[0]}; expected the same", where=source)
        for name, value in _floats(matcher).items():
            weights[name] += value.to(torch.float64) * (share / math.fsum(shares))
    with torch.no_grad():
        for name, value in _floats(mixed).items():
            value.copy_(weights[name])
    return mixed.eval()


# Words that differ where two tokenizers do.
PROBE = "a man and a woman with two dogs on a red bench near the water; one of them runs"


def _floats(matcher: Matcher) -> dict[str, torch.Tensor]:
    return {name: value for name, value in matcher.state_dict().items() if value.is_floating_point()}
