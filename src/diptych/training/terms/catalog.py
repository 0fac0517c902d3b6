"""Every term, listed once by the name that recipes give it: a new one adds a line to the table."""

from collections.abc import Mapping

from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.matchers.kept import Kept
from diptych.training.terms.base import LossTerm
from diptych.training.terms.diversity import DIVERSITY
from diptych.training.terms.mmd import MMD

TERMS: dict[str, LossTerm] = {
    "mmd": MMD,
    "diversity": DIVERSITY,
}


def weighted_terms(weights: Mapping[str, float], images: Kept, texts: Kept, matcher: str) -> dict[str, Tensor]:
    """Weight times term, by name; `matcher` is the kind that kept the two sides, which errors name."""
    values = {}
    for name, weight in weights.items():
        missing = [f for f in TERMS[name].needs if f not in images.tensors() or f not in texts.tensors()]
        if missing:
            raise DiptychError(f"training.terms: {name!r} needs {missing[0]!r}, which {matcher!r} does not keep")
        values[name] = weight * TERMS[name].value(images, texts)
    return values
