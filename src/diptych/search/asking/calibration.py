"""How far a model's scores carry absent things beyond unrelated ones: measured, for the models where it was.

The background of a confidence is sentences about things that a collection has next to nothing of. What people ask in
vain is nearer than that: a dog on a sofa where all dogs are on beaches. Its best result stands further out, the more so
the more words it has, since more of them fit something. So the law of unrelated queries is moved and widened:

    place + width (further + by_word log(words / 8)),  width wider

to the law of captions whose picture is not indexed and that resemble no indexed one, and of short names of things that
no indexed caption mentions. `docs/_make/confidence_figures.py --fit` found the numbers on the validation pictures of
COCO and Flickr8k. They hold where one sentence asks for pictures. Other models and other queries keep the law of
unrelated ones.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from diptych.search.asking.gumbel import Gumbel
from diptych.search.asking.query import SearchQuery
from diptych.search.stores.store import Kind

USUAL = 8  # words


@dataclass(frozen=True)
class Calibration:
    """From the law of unrelated queries to that of absent things, in widths of the former."""

    further: float = 0.0
    by_word: float = 0.0
    wider: float = 1.0

    def law(self, unrelated: Gumbel, words: int) -> Gumbel:
        """The law of absent things that are asked for with so many words."""
        moved = self.further + self.by_word * math.log(max(1, words) / USUAL)
        return Gumbel(unrelated.place + unrelated.width * moved, unrelated.width * self.wider, unrelated.count)


# By the model's name. A test sees that the weights are those that it was measured with.
MEASURED: Mapping[str, Calibration] = {"default": Calibration(further=0.64, by_word=0.61, wider=0.75)}


def calibrated(unrelated: Gumbel, model: str, query: SearchQuery, kind: Kind) -> Gumbel:
    """The law that a query's results are held against: of absent things where that was measured, else as it is."""
    measured = MEASURED.get(model)
    texts = [term.value for term in query.terms if isinstance(term.value, str)]
    if measured is None or kind != "picture" or len(query.terms) != 1 or not texts:
        return unrelated
    return measured.law(unrelated, len(texts[0].split()))
