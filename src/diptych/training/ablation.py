"""Every variant of a recipe, trained and judged alike, in one table beside the paper's rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from diptych.common.device import pick_device
from diptych.common.errors import DiptychError, nearest
from diptych.evaluation.evaluate import evaluate_matcher
from diptych.evaluation.figures import RECALLS
from diptych.evaluation.published import PublishedRow
from diptych.evaluation.result import Evaluation, prefixed
from diptych.evaluation.tables import Cell, FigureTable
from diptych.matchers.base import Matcher
from diptych.training.data import Splits, load_splits
from diptych.training.loop import Device, train
from diptych.training.recipe import Recipe, read_recipe, variant_names

FIGURES = [*RECALLS, "rsum"]
MAIN = "main"  # what the recipe itself is called among its variants


@dataclass(frozen=True)
class Trial:
    """One variant with one seed: its recipe, its run folder, and its evaluation once it is done."""

    variant: str
    seed: int
    recipe: Recipe
    run: Path


@dataclass(frozen=True)
class Row:
    """A variant's results over seeds, and the published row of this very variant where there is one."""

    variant: str
    evaluations: tuple[Evaluation, ...]
    paper: PublishedRow | None

    def values(self, figure: str) -> list[float]:
        """A figure of every seed."""
        return [evaluation[figure] for evaluation in self.evaluations]


def plan(
    path: Path, out: Path, variants: Sequence[str] | None, seeds: Sequence[int], assignments: tuple[str, ...] = ()
) -> list[Trial]:
    """The trials of a recipe: itself and its variants (or those named), each with every seed."""
    known = [MAIN, *variant_names(path)]
    chosen = list(variants) if variants else known
    for name in chosen:
        if name not in known:
            raise DiptychError(f"{path}: no variant {name!r}; {nearest(name, known)}")
    trials = []
    for name in chosen:
        for seed in seeds:
            settings = (*assignments, f"training.seed={seed}")
            recipe = read_recipe(path, None if name == MAIN else name, settings)
            trials.append(Trial(name, seed, recipe, out / name / f"seed-{seed}"))
    return trials


def run_trial(trial: Trial, protocol: str, device: Device, splits: Splits | None = None) -> Evaluation | None:
    """Train and evaluate one trial, or read its evaluation where it is done; None where training was stopped."""
    saved = trial.run / "evaluations" / f"{protocol}-test.json"
    if saved.exists():
        return Evaluation.load(saved)
    splits = splits or load_splits(trial.recipe.data)
    if not train(trial.recipe, trial.run, device, splits).finished:
        return None
    matcher = Matcher.from_pretrained(trial.run / "best").to(pick_device(device.accelerator))
    if not len(splits.test):
        raise DiptychError(f"{trial.recipe.name}: data.test: the split has no pictures to evaluate on")
    result = evaluate_matcher(matcher, splits.test, protocol)
    result = result.described(model=str(trial.run), data=splits.test.name, split="test")
    result.save(trial.run / "evaluations")
    return result


def interval(values: Sequence[float]) -> float | None:
    """Half the width of the mean's 95 % interval over seeds (Student's t); None for one seed, or without scipy."""
    if len(values) < 2 or not _has_scipy():
        return None
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def _has_scipy() -> bool:
    """Machines that train need not have it."""
    return find_spec("scipy") is not None


def ablation_table(rows: Sequence[Row], title: str, changed: Sequence[str] = ()) -> FigureTable:
    """A line a variant: ours (mean and interval over seeds), then the paper's below it where there is one.

    changed: what the command line changed of the recipe, for which it has no rows of a paper
    """
    shown: list[tuple[Cell, ...]] = []
    records: list[dict[str, object]] = []
    notes: list[str] = []
    protocol = rows[0].evaluations[0].protocol
    for row in rows:
        cells: list[Cell] = []
        record: dict[str, object] = {"variant": row.variant, "source": "ours", "seeds": len(row.evaluations)}
        for figure in FIGURES:
            values = row.values(figure)
            half = interval(values)
            mean = float(np.mean(values))
            cells.append(f"{mean:.1f}" if half is None else f"{mean:.1f} ± {half:.1f}")
            record[figure] = mean
            record[f"{figure}/half-width"] = half
        shown.append((row.variant, *cells))
        records.append(record)
        if row.paper is not None:
            theirs = {name: None if name in row.paper.doubtful else v for name, v in row.paper.values.items()}
            printed = {f: theirs.get(f) for f in FIGURES}
            if printed["rsum"] is None and all(printed[f] is not None for f in RECALLS):
                printed["rsum"] = sum(v for f in RECALLS if (v := printed[f]) is not None)
            shown.append((f"  paper: {row.paper.label}", *(printed[f] for f in FIGURES)))
            records.append({"variant": row.variant, "source": row.paper.label, **theirs, **printed})
            others = [f"{name} {v:+g}" for name, v in theirs.items() if name not in FIGURES and v is not None]
            notes += [f"{row.paper.label}: {', '.join(others)}"] if others else []
    seeds = max(len(row.evaluations) for row in rows)
    note = f"ours: mean of {seeds} seeds" if seeds > 1 else "ours: one seed"
    if seeds > 1 and _has_scipy():
        note += " ± 95 % interval (Student's t)"
    elif seeds > 1:
        note += "; with scipy, which diptych[report] installs, the same command adds the 95 % interval"
    if changed:
        notes.append(f"the paper's rows are left out: {', '.join(changed)} was changed")
    columns = ("variant", *(prefixed(protocol, f) for f in FIGURES))
    return FigureTable(columns, tuple(shown), title, (note, *notes), 1, records)
