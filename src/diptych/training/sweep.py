"""A sweep: a recipe trained again and again with other values of some keys, chosen by what went well before.

Optuna chooses, and keeps its journal in the sweep's folder. A trial is a run like any other, in a folder of its own, so
that a sweep that was killed goes on with the very step where its trial stopped. Trials are judged by their validation
RSUM; the test split is never looked at.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.common.config import read_json, to_tree
from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.evaluation.tables import Cell, FigureTable
from diptych.training.claim import locked
from diptych.training.data import Splits, load_splits
from diptych.training.loop import Device, Outcome, train
from diptych.training.recipe import Recipe, read_recipe
from diptych.training.sweep_axes import Axis

STARTUP = 4  # trials that none is stopped against
HOPELESS = 3  # trials that fail, where none has not, before the sweep gives up


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep is: a recipe with its overrides, and the axes that are varied over it.

    prune: whether a trial that is worse than the median of those before it is stopped
    """

    recipe: Path
    out: Path
    axes: tuple[Axis, ...]
    variant: str | None = None
    assignments: tuple[str, ...] = ()
    init_from: str | None = None
    prune: bool = True
    seed: int = 0

    def resolve(self, settings: Sequence[str] = ()) -> Recipe:
        """The recipe of a trial."""
        return read_recipe(self.recipe, self.variant, (*self.assignments, *settings))

    def check(self) -> Recipe:
        """See that the recipe takes the ends of every axis; returns the recipe itself."""
        if not self.axes:
            raise DiptychError("expected at least one --over KEY=LOW..HIGH")
        keys = [axis.key for axis in self.axes]
        for key in keys:
            if keys.count(key) > 1:
                raise DiptychError(f"--over: {key} is given {keys.count(key)} times; once is enough")
        for axis in self.axes:
            for value in axis.ends():
                self.resolve([f"{axis.key}={value}"])
        return self.resolve()

    def tree(self) -> dict[str, Any]:
        """What makes it this sweep and no other; `prune` may change."""
        base = to_tree(self.resolve())
        return {"recipe": base, "over": [to_tree(axis) for axis in self.axes], "init_from": self.init_from}


@dataclass(frozen=True)
class TrialResult:
    """How one trial ended: `done`, `stopped` because others were better, or `failed` with a sentence.

    values: of each axis, for people; rsum: the best validation RSUM, and its epoch from 1
    """

    run: Path
    state: str
    values: tuple[str, ...]
    rsum: float | None
    epoch: int | None
    said: str = ""


@dataclass(frozen=True)
class SweepResult:
    """A sweep's trials, the best first; `finished` where there are as many as were asked for."""

    trials: tuple[TrialResult, ...]
    finished: bool


def run_sweep(
    plan: SweepPlan,
    trials: int,
    device: Device | None = None,
    splits: Splits | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> SweepResult:
    """Train until so many trials are done; one that was interrupted goes on first.

    splits: the data, where it is at hand and no axis changes it; tell: is given a line for each trial
    """
    optuna = _optuna()
    base = plan.check()
    plan.out.mkdir(parents=True, exist_ok=True)
    with locked(plan.out):
        _claim(plan)
        fixed = splits is not None or not any(axis.key.startswith("data") for axis in plan.axes)
        if fixed and splits is None:
            splits = load_splits(base.data)
        study = _study(optuna, plan, base)
        _take_up(optuna, study)
        while len(results(plan, study)) < trials:
            trial = study.ask()
            settings = [f"{axis.key}={axis.suggest(trial)}" for axis in plan.axes]
            run = plan.out / _run_name(study, trial)
            tell(f"{run.name} ({len(results(plan, study)) + 1} of {trials}): {' '.join(settings)}")
            try:
                outcome = _train(plan, study, trial, settings, run, device, splits if fixed else None)
            except DiptychError as error:
                trial.set_user_attr("error", str(error))
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                tell(f"{run.name}: failed: {error}")
                _give_up(plan, study, error)
                continue
            if not outcome.finished:
                return SweepResult(tuple(results(plan, study)), False)
            trial.set_user_attr("epoch", outcome.position.best_epoch + 1)
            trial.set_user_attr("rsum", outcome.position.best_rsum)
            if outcome.ended == "judge":
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                tell(f"{run.name}: stopped after epoch {outcome.position.epoch}: below the median of those before it")
            else:
                study.tell(trial, outcome.position.best_rsum)
        return SweepResult(tuple(results(plan, study)), True)


def results(plan: SweepPlan, study: Any) -> list[TrialResult]:
    """The trials that came to an end, the best first, the failed last."""
    states = {"COMPLETE": "done", "PRUNED": "stopped", "FAIL": "failed"}
    found = []
    for trial in study.get_trials(deepcopy=False):
        state = states.get(trial.state.name)
        said = trial.user_attrs.get("error", "")
        if state is None or (state == "failed" and not said):
            continue  # under way, or interrupted and taken up by another
        values = tuple(axis.shown(trial.params[axis.key]) for axis in plan.axes)
        rsum, epoch = trial.user_attrs.get("rsum"), trial.user_attrs.get("epoch")
        found.append(TrialResult(plan.out / trial.user_attrs["run"], state, values, rsum, epoch, said))
    return sorted(found, key=lambda result: (result.rsum is None, -(result.rsum or 0.0), result.run.name))


def sweep_table(plan: SweepPlan, result: SweepResult) -> FigureTable:
    """A trial a row, the best first."""
    columns = ("trial", *(axis.key for axis in plan.axes), "rsum", "epoch", "state")
    rows: list[tuple[Cell, ...]] = [
        (trial.run.name, *trial.values, trial.rsum, None if trial.epoch is None else str(trial.epoch), trial.state)
        for trial in result.trials
    ]
    records: list[dict[str, object]] = [
        {
            "run": str(trial.run),
            **{axis.key: value for axis, value in zip(plan.axes, trial.values, strict=True)},
            "rsum": trial.rsum, "epoch": trial.epoch, "state": trial.state, "said": trial.said,
        }
        for trial in result.trials
    ]  # fmt: skip
    notes = ["rsum: the best of the validation split, and its epoch; the best of many trials flatters itself a little"]
    if any(trial.state == "stopped" for trial in result.trials):
        notes.append("stopped: ended early, since it was below the median of the trials before it")
    notes += [f"{trial.run.name}: {trial.said}" for trial in result.trials if trial.said]
    return FigureTable(columns, tuple(rows), f"{plan.recipe.stem}: {len(rows)} trials", tuple(notes), 1, records)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise DiptychError("a sweep needs Optuna; install diptych[sweep]") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _claim(plan: SweepPlan) -> None:
    """A folder is one sweep's: the same recipe over the same axes."""
    path, tree = plan.out / "sweep.json", json.loads(json.dumps(plan.tree()))
    if not path.exists():
        write_json(path, tree)
        return
    before = read_json(path)
    for key, what in (
        ("recipe", "of another recipe"),
        ("over", "over other values"),
        ("init_from", "from other weights"),
    ):
        if before.get(key) != tree[key]:
            raise DiptychError(f"{plan.out}: holds a sweep {what}; give another --out")


def _study(optuna: Any, plan: SweepPlan, base: Recipe) -> Any:
    from optuna.storages.journal import JournalFileBackend

    storage = optuna.storages.JournalStorage(JournalFileBackend(str(plan.out / "journal.log")))
    pruner = optuna.pruners.NopPruner()
    if plan.prune:
        pruner = optuna.pruners.MedianPruner(STARTUP, n_warmup_steps=base.training.epochs // 4 + 1)
    study = optuna.create_study(
        storage=storage, study_name="sweep", direction="maximize", pruner=pruner, load_if_exists=True
    )
    # Another draw in every start: one that goes on would else choose again what it chose at first.
    study.sampler = optuna.samplers.TPESampler(seed=plan.seed + len(study.get_trials(deepcopy=False)))
    return study


def _take_up(optuna: Any, study: Any) -> None:
    """Queue again what was under way when the sweep was stopped or killed, in its own run folder."""
    states = optuna.trial.TrialState
    waiting = {trial.user_attrs.get("run") for trial in study.get_trials(states=[states.WAITING])}
    for trial in study.get_trials(states=[states.RUNNING]):
        run = trial.user_attrs.get("run")
        if run is not None and run not in waiting:
            study.enqueue_trial(trial.params, user_attrs={"run": run})
        study.tell(trial.number, state=states.FAIL)


def _run_name(study: Any, trial: Any) -> str:
    """The folder of a trial: its own where it was begun before, else the next."""
    name: str | None = trial.user_attrs.get("run")
    if name is None:
        begun = {t.user_attrs["run"] for t in study.get_trials(deepcopy=False) if "run" in t.user_attrs}
        name = f"trial-{len(begun):03d}"
        trial.set_user_attr("run", name)
    return name


def _train(
    plan: SweepPlan,
    study: Any,
    trial: Any,
    settings: Sequence[str],
    run: Path,
    device: Device | None,
    splits: Splits | None,
) -> Outcome:
    for epoch, rsum in _evaluated(run):
        trial.report(rsum, epoch)

    def judge(epoch: int, figures: dict[str, float]) -> bool:
        trial.report(figures["rsum"], epoch)
        return not trial.should_prune()

    return train(plan.resolve(settings), run, device, splits, plan.init_from, judge)


def _evaluated(run: Path) -> list[tuple[int, float]]:
    """The epochs, from 1, that a run has been evaluated after, with their RSUM."""
    path = run / "metrics.jsonl"
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut off by a kill
        if "validation" in entry:
            found.append((entry["epoch"] + 1, entry["validation"]["rsum"]))
    return found


def _give_up(plan: SweepPlan, study: Any, error: DiptychError) -> None:
    ended = results(plan, study)
    if len(ended) >= HOPELESS and all(trial.state == "failed" for trial in ended):
        raise DiptychError(f"{plan.out}: all {len(ended)} trials failed, the last with: {error}")
