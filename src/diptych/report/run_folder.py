"""A run folder as a report reads it: recipe, log, how far it came, its model and its evaluations."""

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from diptych.common.config import parse, parse_json, read_json
from diptych.common.errors import DiptychError
from diptych.evaluation.result import Evaluation
from diptych.training.checkpoints import Position
from diptych.training.patience import out_of_patience
from diptych.training.recipe import Recipe, load_run_recipe


@dataclass(frozen=True)
class RunLog:
    """What metrics.jsonl holds.

    steps, losses, rates: one an optimiser step; validations: (epoch from 1, figures) of each evaluation
    unreadable: lines that could not be read
    """

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    validations: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    unreadable: int = 0

    @property
    def best(self) -> tuple[int, dict[str, float]] | None:
        """The evaluation with the highest RSUM, the first of equal ones."""
        told = [v for v in self.validations if "rsum" in v[1]]
        return max(told, key=lambda v: v[1]["rsum"]) if told else None


@dataclass(frozen=True)
class RunFolder:
    """Everything that a report takes from a run folder without its data.

    position: where the run is; none where it has no checkpoint yet
    model: the folder of the weights that are looked at, `best` or else `last`; none without a checkpoint
    evaluations: what `diptych evaluate` saved, by name
    problems: what could not be read, a sentence each
    """

    path: Path
    recipe: Recipe
    log: RunLog
    position: Position | None
    model: Path | None
    evaluations: dict[str, Evaluation]
    problems: tuple[str, ...]

    @property
    def name(self) -> str:
        """The recipe's name, and its variant's."""
        variant = self.recipe.variant
        return self.recipe.name if variant is None else f"{self.recipe.name}, variant {variant}"

    @property
    def finished(self) -> bool:
        """Whether the run came to its recipe's end, or ran out of patience."""
        if self.position is None or self.position.step:
            return False
        return self.position.epoch >= self.recipe.training.epochs or out_of_patience(
            self.recipe.training, self.position
        )

    @property
    def dates(self) -> tuple[datetime, datetime] | None:
        """When the recipe and the last line of the log were written, by the files' dates; none where that is no span.

        A folder that was copied without its dates has none that mean anything.
        """
        log = self.path / "metrics.jsonl"
        if not log.is_file():
            return None
        first, last = ((self.path / "recipe.json").stat().st_mtime, log.stat().st_mtime)
        if last - first < 1:
            return None
        return datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC)


def read_run(path: Path) -> RunFolder:
    """Read a run folder; anything else is an error that says what a run has."""
    if not path.is_dir():
        raise DiptychError("no such run; expected a folder that `diptych train` wrote", where=path)
    if not (path / "recipe.json").is_file():
        what = "a model folder" if (path / "config.json").is_file() else "a folder"
        raise DiptychError(
            f"is {what} without recipe.json; expected a run folder that `diptych train` wrote", where=path
        )
    problems: list[str] = []
    recipe = load_run_recipe(path)
    position = None
    if (path / "last" / "position.json").is_file():
        try:
            position = parse(Position, read_json(path / "last" / "position.json"), "last/position.json")
        except DiptychError as error:
            problems.append(f"How far the run came cannot be read: {error.within(path).rstrip('.')}.")
    model = next((path / name for name in ("best", "last") if (path / name / "config.json").is_file()), None)
    evaluations = {}
    for file in sorted((path / "evaluations").glob("*.json")):
        try:
            evaluations[file.stem] = Evaluation.load(file)
        except DiptychError as error:
            problems.append(f"The evaluation {file.stem} cannot be read: {error.within(path).rstrip('.')}.")
        except (KeyError, TypeError, ValueError) as error:
            problems.append(f"The evaluation {file.stem} cannot be read: {error}.")
    return RunFolder(path, recipe, read_log(path / "metrics.jsonl"), position, model, evaluations, tuple(problems))


def read_log(path: Path) -> RunLog:
    """Read metrics.jsonl; an empty log where there is none, and lines that a kill cut off are only counted."""
    log = RunLog()
    unreadable = 0
    if not path.is_file():
        return log
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                entry = parse_json(line)
                if "validation" in entry:
                    figures = {k: float(v) for k, v in entry["validation"].items() if math.isfinite(v)}
                    log.validations.append((int(entry["epoch"]) + 1, figures))
                    continue
                step, loss, rate = int(entry["step"]), float(entry["loss"]), float(entry["lr"])
            except (ValueError, KeyError, TypeError, AttributeError):
                unreadable += 1
                continue
            if math.isfinite(loss) and math.isfinite(rate):
                log.steps.append(step)
                log.losses.append(loss)
                log.rates.append(rate)
    return RunLog(log.steps, log.losses, log.rates, log.validations, unreadable)
