"""Ensembles: the mean of several models' scores."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from diptych.common.errors import DiptychError
from diptych.evaluation.sources import RowSource, ScoreBlock, Strip, strips


class EnsembleSource:
    """The mean of the scores of several sources with the same pictures and sentences, formed strip by strip."""

    def __init__(self, members: Sequence[RowSource]) -> None:
        if not members:
            raise DiptychError("ensemble: expected at least one model")
        shapes = {member.shape for member in members}
        if len(shapes) > 1:
            raise DiptychError(f"ensemble: the models scored different numbers of pairs: {sorted(shapes)}")
        self.members = list(members)

    @property
    def shape(self) -> tuple[int, int]:
        """(pictures, sentences)."""
        return self.members[0].shape

    @property
    def tolerance(self) -> float:
        """The mean of matrices is added up in another order than that of single pairs."""
        return max(1e-6, *(member.tolerance for member in self.members))

    def blocks(self) -> Iterator[ScoreBlock]:
        """Strips of rows."""
        return strips(self)

    def rows(self, start: int, stop: int) -> Iterator[ScoreBlock]:
        """One strip: every member's scores, added up and divided."""
        total = torch.zeros(stop - start, self.shape[1])
        for member in self.members:
            for block in member.rows(start, stop):
                run = slice(block.images.start - start, block.images.stop - start)
                total[run, block.texts] += block.scores.float().cpu()
        yield Strip(slice(start, stop), torch.arange(self.shape[1]), total / len(self.members))

    def pairs(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray | None:
        """The mean of the members' scores of these pairs."""
        each = [member.pairs(images, texts) for member in self.members]
        known = [scores for scores in each if scores is not None]
        return np.mean(known, axis=0) if len(known) == len(each) else None

    def near(self) -> None:
        """Nowhere as a whole: the members may be on different devices."""

    def part(self, images: np.ndarray, texts: np.ndarray) -> "EnsembleSource":
        """Fewer pictures and sentences."""
        return EnsembleSource([member.part(images, texts) for member in self.members])
