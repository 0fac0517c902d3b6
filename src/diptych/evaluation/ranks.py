"""Ranks by counting how many scores are greater, block by block: nothing is sorted and no matrix is held.

The rank of a right pair is known only against its own score, which sits in some block that may come last. So the score
is computed apart first, to within rounding. A score clearly above that guess counts at once; the few that lie within
rounding of it are set aside, and settled when the blocks have shown the pair's own score. Every score is computed
once, and the ranks are exactly those of the matrix that the blocks make up.

A matrix that lies whole on a GPU is counted there: its right pairs' own scores are at hand.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.evaluation.positives import Positives
from diptych.evaluation.sources import ScoreBlock, ScoreSource, Strip

ABSOLUTE = 0.2  # of the tolerance: what is allowed to scores near 0
CACHED = 1 << 20  # scores that are counted at once
COUNTED = 1 << 26  # the same on a GPU
SPARSE = 32  # one score in so many: below it, looking at each is faster than a second pass over all
ASIDE_LIMIT = 16_000_000  # scores set aside, 12 bytes each


@dataclass(frozen=True, eq=False)
class Ranks:
    """Where right answers come, for every query of one direction; 1 is the best rank.

    query: (r,) int64, position of the picture or sentence that asks, ascending
    place: (r,) int64, 0 for its best right answer, 1 for the next; only 0 unless every right answer was asked for
    optimistic: (r,) int64, rank when the right answer wins every tie with a wrong one
    pessimistic: (r,) int64, rank when it loses every such tie
    """

    query: np.ndarray
    place: np.ndarray
    optimistic: np.ndarray
    pessimistic: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Half-way between optimistic and pessimistic: (r,) float64."""
        return (self.optimistic + self.pessimistic) / 2

    @property
    def tied(self) -> bool:
        """Whether any rank depends on how ties are broken."""
        return bool((self.optimistic != self.pessimistic).any())

    def best(self) -> "Ranks":
        """Only the best right answer of each query."""
        first = self.place == 0
        return Ranks(self.query[first], self.place[first], self.optimistic[first], self.pessimistic[first])


def count_ranks(
    source: ScoreSource, i2t: Positives, t2i: Positives | None = None, every: bool = False
) -> tuple[Ranks, Ranks]:
    """Ranks of sentences for pictures, and of pictures for sentences.

    t2i: right pairs for that direction where they are not those of `i2t`
    every: rank every right answer, not only the best one of each query
    """
    sets = [i2t] if t2i is None or t2i is i2t else [i2t, t2i]
    near = source.near()
    if near is not None:
        return _near_ranks(near, sets, every)
    seen = [_Seen(positives, source.shape) for positives in sets]
    guesses = [source.pairs(positives.images, positives.texts) for positives in sets]
    known = [guess for guess in guesses if guess is not None]
    if len(known) == len(guesses):
        sides = _sides(sets, known, every, source.tolerance)
        _go_through(source, seen, sides)
        if all(side.settle(seen[-axis].scores) for axis, side in enumerate(sides)):
            return sides[0].ranks(seen[0].scores), sides[1].ranks(seen[-1].scores)
    else:
        _go_through(source, seen, [])
    sides = _sides(sets, [s.scores for s in seen], every, 0.0)
    _go_through(source, [], sides)
    return sides[0].ranks(seen[0].scores), sides[1].ranks(seen[-1].scores)


def _near_ranks(scores: Tensor, sets: list[Positives], every: bool) -> tuple[Ranks, Ranks]:
    """Ranks in a whole matrix (pictures, sentences), counted where it lies; only the counts come back."""
    check_finite(Strip(slice(0, len(scores)), torch.arange(scores.shape[1]), scores))
    own = [scores[torch.from_numpy(s.images), torch.from_numpy(s.texts)].cpu().double().numpy() for s in sets]
    sides = _sides(sets, own, every, 0.0)
    for side in sides:
        side.above, side.equal = count_lines(scores if side.axis == 0 else scores.T, side.query, side.level)
    return sides[0].ranks(own[0]), sides[1].ranks(own[-1])


def count_lines(lines: Tensor, query: np.ndarray, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many numbers of line query[i] of a matrix are greater than level[i], and how many equal: two of (queries,).

    Lines are picked and counted some at a time, on the matrix's own device, which is waited for once.
    """
    at, levels = torch.from_numpy(query).to(lines.device), torch.from_numpy(level).to(lines)
    counts = []
    step = max(1, COUNTED // lines.shape[1])
    for start in range(0, len(query), step):
        part, beside = lines[at[start : start + step]], levels[start : start + step].unsqueeze(1)
        counts.append(torch.stack(((part > beside).sum(1), (part == beside).sum(1))))
    above, equal = torch.cat(counts, 1).cpu().numpy()
    return above, equal


def _sides(sets: list[Positives], scores: list[np.ndarray], every: bool, tolerance: float) -> "list[_Side]":
    # The last set is the first one where both directions share it.
    return [_Side(sets[-axis], axis, scores[-axis], every, tolerance) for axis in (0, 1)]


def _go_through(source: ScoreSource, seen: "Sequence[_Seen]", sides: "Sequence[_Side]") -> None:
    cells = 0
    with ThreadPoolExecutor(max(1, len(sides))) as pool:
        # Threads cost more than they save on a small matrix.
        both = pool.map if source.shape[0] * source.shape[1] > CACHED else map
        for block in source.blocks():
            check_finite(block)
            scores, texts = block.scores.cpu().numpy(), block.texts.numpy()
            images = np.arange(block.images.start, block.images.stop)
            cells += scores.size
            for s in seen:
                s.add(scores, images, texts)
            list(both(lambda side: side.add(scores, images, texts), sides))  # noqa: B023
    if cells != source.shape[0] * source.shape[1]:
        raise DiptychError(f"scores: the blocks hold {cells} pairs; expected {source.shape[0]} x {source.shape[1]}")


def check_finite(block: ScoreBlock) -> None:
    """Refuse a block with a score that is NaN or infinite, naming the first."""
    scores: Tensor = block.scores
    if bool(scores.sum().isfinite()):  # one quick look: a sum is finite only if every term is
        return
    wrong = (~scores.isfinite()).nonzero()
    if len(wrong):
        i, j = int(wrong[0, 0]), int(wrong[0, 1])
        raise DiptychError(
            f"scores: the score of image {block.images.start + i} with sentence {int(block.texts[j])} is "
            f"{float(scores[i, j])}; expected finite scores ({len(wrong)} in this block are not)"
        )


class _Seen:
    """Picks the right pairs' own scores out of the blocks."""

    def __init__(self, positives: Positives, shape: tuple[int, int]) -> None:
        self.positives = positives
        self.scores = np.full(len(positives), np.nan)
        self.column = np.full(shape[1], -1)

    def add(self, scores: np.ndarray, images: np.ndarray, texts: np.ndarray) -> None:
        start, stop = np.searchsorted(self.positives.images, [images[0], images[-1] + 1])
        if start == stop:
            return
        self.column[texts] = np.arange(len(texts))
        columns = self.column[self.positives.texts[start:stop]]
        here = start + np.flatnonzero(columns >= 0)
        self.scores[here] = scores[self.positives.images[here] - images[0], columns[here - start]]
        self.column[texts] = -1


class _Side:
    """The counts of one direction. Axis 0: pictures ask, their rows are counted; axis 1: sentences and columns."""

    def __init__(self, positives: Positives, axis: int, scores: np.ndarray, every: bool, tolerance: float) -> None:
        self.axis, self.exact = axis, tolerance == 0
        asking = positives.images if axis == 0 else positives.texts
        self.groups = _Groups(asking, every)
        self.query = self.groups.query
        self.level = self.groups.levels(scores.astype(np.float64))
        margin = tolerance * (ABSOLUTE + np.abs(self.level))
        self.low, self.high = self.level - margin, self.level + margin
        self.above = np.zeros(len(self.query), dtype=np.int64)
        self.equal = np.zeros(len(self.query), dtype=np.int64)
        self.aside: list[tuple[np.ndarray, np.ndarray]] = []
        self.aside_size = 0

    def add(self, scores: np.ndarray, images: np.ndarray, texts: np.ndarray) -> None:
        """Count one block, a few rows at a time, so that they stay in the processor's cache."""
        rows = max(1, CACHED // scores.shape[1])
        for start in range(0, len(scores), rows):
            stop = start + rows
            self._add(scores[start:stop], images[start:stop] if self.axis == 0 else texts)

    def _add(self, scores: np.ndarray, positions: np.ndarray) -> None:
        """Count scores whose rows (axis 0) or columns (axis 1) stand at `positions`."""
        where = np.full(max(int(positions.max()), int(self.query[-1])) + 1, -1)
        where[positions] = np.arange(len(positions))
        at = where[self.query]
        chosen = np.flatnonzero(at >= 0)
        for start in range(0, len(chosen), len(positions)):  # never more at once than the block itself
            part = chosen[start : start + len(positions)]
            self._count(scores, part, at[part])

    def _count(self, scores: np.ndarray, chosen: np.ndarray, at: np.ndarray) -> None:
        """Count the queries `chosen`, which stand `at` rows or columns of the block."""
        if len(at) != scores.shape[self.axis] or (at != np.arange(len(at))).any():
            scores = scores[at] if self.axis == 0 else scores[:, at]
        reach = self._beyond(scores, chosen, low=True)
        if not self.exact and SPARSE * np.count_nonzero(reach) < reach.size:
            # A matcher that has learned ranks its right answers high: the few scores above them are looked at singly.
            which, values = self._cells(scores, reach)
            sure = values > self.high[chosen].astype(scores.dtype)[which]
            self.above += np.bincount(chosen[which[sure]], minlength=len(self.above))
            self._put_aside(chosen[which[~sure]], values[~sure])
            return
        above = self._beyond(scores, chosen, low=False)
        counted = count_true(above, 1 - self.axis)
        self.above[chosen] += counted
        if self.exact:
            self.equal[chosen] += count_true(reach, 1 - self.axis) - counted
        elif self.aside_size <= ASIDE_LIMIT:
            which, values = self._cells(scores, np.not_equal(above, reach, out=above))
            self._put_aside(chosen[which], values)

    def _cells(self, scores: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows (or columns) and values of the scores that a mask picks."""
        cells = np.flatnonzero(mask)
        return np.divmod(cells, scores.shape[1])[self.axis], scores.ravel()[cells]

    def _put_aside(self, which: np.ndarray, values: np.ndarray) -> None:
        self.aside.append((which.astype(np.int32), values))
        self.aside_size += len(values)

    def _beyond(self, scores: np.ndarray, chosen: np.ndarray, low: bool) -> np.ndarray:
        bound = (self.low if low else self.high)[chosen].astype(scores.dtype)
        bound = bound[:, None] if self.axis == 0 else bound[None, :]
        return scores >= bound if low else scores > bound

    def settle(self, scores: np.ndarray) -> bool:
        """Count what was set aside against the right pairs' own scores; False where a guess was too far off."""
        if self.exact:
            return True
        level = self.groups.levels(scores)
        if self.aside_size > ASIDE_LIMIT or not bool(((level >= self.low) & (level <= self.high)).all()):
            return False
        for which, values in self.aside:
            self.above += np.bincount(which[values > level[which]], minlength=len(self.above))
            self.equal += np.bincount(which[values == level[which]], minlength=len(self.above))
        return True

    def ranks(self, scores: np.ndarray) -> Ranks:
        """Ranks from the counts: right answers among the greater and equal ones are told apart from wrong ones."""
        place, greater, equal = self.groups.places(scores)
        optimistic = self.above - greater + place + 1
        return Ranks(self.query, place, optimistic, optimistic + self.equal - equal)


class _Groups:
    """The right pairs of each query: only the best of each, or all in order."""

    def __init__(self, asking: np.ndarray, every: bool) -> None:
        self.asking, self.every = asking, every
        self.queries, self.counts = np.unique(asking, return_counts=True)
        self.starts = np.cumsum(self.counts) - self.counts
        self.query = np.repeat(self.queries, self.counts) if every else self.queries

    def _sorted(self, scores: np.ndarray) -> np.ndarray:
        return scores[np.lexsort((-scores, self.asking))]  # by query, then from the best score down

    def levels(self, scores: np.ndarray) -> np.ndarray:
        """The scores to count against, best first within a query."""
        ordered = self._sorted(scores)
        return ordered if self.every else ordered[self.starts]

    def places(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each counted pair: its place among the right answers, and how many of these are greater and equal."""
        ordered, query = self._sorted(scores), np.sort(self.asking)
        index = np.arange(len(ordered))
        new = np.r_[True, (ordered[1:] != ordered[:-1]) | (query[1:] != query[:-1])]
        run = np.cumsum(new) - 1
        place = index - np.repeat(self.starts, self.counts)
        greater = place[np.flatnonzero(new)][run]
        equal = np.bincount(run)[run]
        if self.every:
            return place, greater, equal
        return place[self.starts], greater[self.starts], equal[self.starts]


def count_true(mask: np.ndarray, axis: int) -> np.ndarray:
    """How many are true along an axis of a boolean matrix; several times faster than summing booleans."""
    if axis == 1:
        return np.fromiter((np.count_nonzero(row) for row in mask), np.int64, len(mask))
    total = np.zeros(mask.shape[1], dtype=np.int64)
    for start in range(0, len(mask), 255):  # 255 ones still fit in a byte
        total += np.add.reduce(mask[start : start + 255].view(np.uint8), axis=0, dtype=np.uint8)
    return total
