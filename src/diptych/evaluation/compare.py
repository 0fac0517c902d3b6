"""Runs side by side: bootstrap intervals, and a paired permutation test on per-query results.

The unit that is drawn or flipped is a picture with all its sentences, since the sentences of a picture are not
independent of each other. A run may stand for several, trained with several seeds: a picture then counts with its mean
over them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.evaluation.figures import CUTS, RECALLS
from diptych.evaluation.result import Evaluation, prefixed


@dataclass(frozen=True)
class Interval:
    """A number with the ends of its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """How far a run is from the first one, and how likely so much would be if the two were alike.

    p: two-sided, from the paired permutation test
    """

    value: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class RunComparison:
    """Figures of several runs under one protocol; the first is what the others are compared with.

    figures: by figure, then by run; differences: by figure, then by run but for the first
    seeds: how many trainings each run is the mean of; spread: by figure, then by run of several seeds, their standard
        deviation
    """

    protocol: str
    runs: tuple[str, ...]
    figures: dict[str, dict[str, Interval]]
    differences: dict[str, dict[str, Difference]]
    confidence: float
    draws: int
    permutations: int
    seed: int
    seeds: tuple[int, ...] = ()
    spread: dict[str, dict[str, float]] = field(default_factory=dict)

    def tree(self) -> dict[str, Any]:
        """Plain dictionaries, ready for JSON."""
        return asdict(self)


def compare(
    evaluations: Mapping[str, Evaluation | Sequence[Evaluation]],
    draws: int = 2000,
    permutations: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> RunComparison:
    """Compare runs by name, each with its evaluation on the same queries; the first is the base.

    A run with several evaluations was trained with as many seeds. Its figures are their means; the bootstrap draws
    seeds as well as pictures, and the permutation test flips a picture's mean over the seeds.

    >>> runs = {"mine": evaluate_matcher(matcher, collection), "theirs": evaluate_matcher(other, collection)}
    >>> compare(runs, draws=50, permutations=50).differences["rsum"]["theirs"].p <= 1
    True
    """
    if len(evaluations) < 2:
        raise DiptychError(f"compare: expected at least two runs, got {len(evaluations)}")
    if not 0 < confidence < 1 or draws < 1 or permutations < 1:
        raise DiptychError("compare: expected a confidence between 0 and 1, and at least one draw and permutation")
    names = list(evaluations)
    runs = [(each,) if isinstance(each, Evaluation) else tuple(each) for each in evaluations.values()]
    if not all(runs):
        raise DiptychError(f"{names[[bool(run) for run in runs].index(False)]}: expected at least one evaluation")
    named = {
        name if len(run) == 1 else f"{name}, seed {i + 1} of {len(run)}": each
        for name, run in zip(names, runs, strict=True)
        for i, each in enumerate(run)
    }
    _check_same_queries(named)
    results = list(named.values())
    units = results[0].images
    parts = [_parts(result, units) for result in results]
    each = np.stack([np.stack([numerator for numerator, _ in part.values()], 1) for part in parts])  # (all, units, f)
    by_seed = [seeds for seeds, _ in _rows_of(each, [len(run) for run in runs])]  # of each run (seeds, units, f)
    sums = np.stack([seeds.mean(0) for seeds in by_seed])  # (runs, units, f)
    weights = np.stack([weight for _, weight in parts[0].values()], 1)  # (units, f)
    keys = list(parts[0])
    rng = np.random.default_rng(seed)
    drawn = _bootstrap(by_seed, weights, draws, rng)  # (draws, runs, f)
    values = sums.sum(1) / weights.sum(0)  # (runs, f)
    trained = [seeds.sum(1) / weights.sum(0) for seeds in by_seed]  # of each run (seeds, f)
    # Each unit's share of each figure, so that a figure is the sum of its shares.
    shares = sums / weights.sum(0)
    if all(key in keys for key in RECALLS):
        six = [keys.index(key) for key in RECALLS]
        keys.append("rsum")
        drawn = np.concatenate([drawn, drawn[..., six].sum(-1, keepdims=True)], -1)
        values = np.concatenate([values, values[:, six].sum(-1, keepdims=True)], -1)
        shares = np.concatenate([shares, shares[..., six].sum(-1, keepdims=True)], -1)
        trained = [np.concatenate([seeds, seeds[:, six].sum(-1, keepdims=True)], -1) for seeds in trained]
    p = _permutation(shares[1:] - shares[:1], permutations, rng)  # (runs - 1, f)
    ends = (1 - confidence) / 2, (1 + confidence) / 2
    lows, highs = np.quantile(drawn, ends, axis=0)
    gap_lows, gap_highs = np.quantile(drawn[:, 1:] - drawn[:, :1], ends, axis=0)
    figures, differences, spread = {}, {}, {}
    for f, key in enumerate(keys):
        full = prefixed(results[0].protocol, key)
        figures[full] = {
            name: Interval(float(values[r, f]), float(lows[r, f]), float(highs[r, f])) for r, name in enumerate(names)
        }
        differences[full] = {
            name: Difference(
                float(values[r + 1, f] - values[0, f]),
                float(gap_lows[r, f]),
                float(gap_highs[r, f]),
                float(p[r, f]),
            )
            for r, name in enumerate(names[1:])
        }
        spread[full] = {
            name: float(seeds[:, f].std(ddof=1)) for name, seeds in zip(names, trained, strict=True) if len(seeds) > 1
        }
    return RunComparison(
        results[0].protocol, tuple(names), figures, differences, confidence, draws, permutations, seed,
        tuple(len(run) for run in runs), {key: values for key, values in spread.items() if values},
    )  # fmt: skip


def _check_same_queries(evaluations: Mapping[str, Evaluation]) -> None:
    (first, base), *others = evaluations.items()
    for name, other in others:
        if other.protocol != base.protocol:
            raise DiptychError(f"was evaluated with {other.protocol}, but {first} with {base.protocol}", where=name)
        if (other.images, other.sentences) != (base.images, base.sentences):
            raise DiptychError(
                f"was evaluated on {other.images} pictures and {other.sentences} sentences, "
                f"but {first} on {base.images} and {base.sentences}",
                where=name,
            )
        for key in ("image_ids", "sentence_ids", "i2t/query", "t2i/query", "i2t/owner", "t2i/owner"):
            here, there = other.per_query.get(key), base.per_query.get(key)
            if (here is None) != (there is None) or (
                here is not None and there is not None and not np.array_equal(here, there)
            ):
                raise DiptychError(f"was not evaluated on the same queries as {first}: {key} differ", where=name)


def _parts(result: Evaluation, units: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For every figure that is a mean over queries: each unit's weighted sum of values, and of weights: (units,)."""
    parts = {}
    for direction in ("i2t", "t2i"):
        here = {key.split("/", 1)[1]: v for key, v in result.per_query.items() if key.startswith(f"{direction}/")}
        owner, weight = here["owner"], here["weight"]
        if "optimistic" in here:
            ranks = (here["optimistic"] + here["pessimistic"]) / 2
            values = {f"r@{k}": 100.0 * (ranks <= k) for k in CUTS} | {"meanr": ranks}
        else:
            values = {key: v for key, v in here.items() if key not in ("query", "owner", "weight")}
        total = np.bincount(owner, weight, minlength=units)
        for key, value in values.items():
            parts[f"{direction}/{key}"] = np.bincount(owner, weight * value, minlength=units), total
    return parts


def _bootstrap(by_seed: Sequence[np.ndarray], weights: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Figures (draws, runs, f) of units drawn with replacement, the same ones for all runs, and of each run's seeds.

    by_seed: of each run (seeds, units, f); seeds of different runs have nothing to do with each other
    """
    runs, (units, figures) = len(by_seed), weights.shape
    counts = [len(seeds) for seeds in by_seed]
    flat = np.concatenate([np.concatenate(by_seed).transpose(1, 0, 2).reshape(units, -1), weights], 1)
    sums = np.stack([seeds.mean(0) for seeds in by_seed])
    whole = sums.sum(1) / weights.sum(0)
    out = np.empty((draws, runs, figures))
    for d in range(draws):
        total = np.bincount(rng.integers(0, units, units), minlength=units) @ flat
        below, above = total[-figures:], total[:-figures].reshape(-1, figures)
        chosen = [rows[rng.integers(0, n, n)] if n > 1 else rows for rows, n in _rows_of(above, counts)]
        means = np.stack([rows.mean(0) for rows in chosen])
        # A draw without any query of one direction says nothing about it: the whole figure stands in.
        out[d] = np.where(below > 0, means / np.where(below > 0, below, 1), whole)
    return out


def _rows_of(rows: np.ndarray, counts: Sequence[int]) -> list[tuple[np.ndarray, int]]:
    """Rows cut into runs of so many."""
    return list(zip(np.split(rows, np.cumsum(counts)[:-1]), counts, strict=True))


def _permutation(gaps: np.ndarray, permutations: int, rng: np.random.Generator) -> np.ndarray:
    """Two-sided p values (runs, f): how often flipping the sign of each unit's gap at random gives as large a sum."""
    runs, units, figures = gaps.shape
    flat = gaps.transpose(1, 0, 2).reshape(units, -1)
    observed = np.abs(flat.sum(0))
    # Sums that are equal but for rounding count as equal.
    reach = observed - 1e-9 * np.maximum(np.abs(flat).sum(0), 1e-300)
    exceed = np.zeros(flat.shape[1], dtype=np.int64)
    for start in range(0, permutations, 256):
        count = min(256, permutations - start)
        signs = rng.integers(0, 2, (count, units), dtype=np.int8) * 2.0 - 1.0
        exceed += (np.abs(signs @ flat) >= reach).sum(0)
    return ((exceed + 1) / (permutations + 1)).reshape(runs, figures)
