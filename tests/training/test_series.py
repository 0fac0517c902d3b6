import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.evaluation.compare import compare
from diptych.evaluation.evaluate import evaluate_matcher
from diptych.evaluation.result import Evaluation
from diptych.evaluation.runs import load_evaluations, seeds_of
from diptych.matchers.base import Matcher
from diptych.training import series, signals
from diptych.training.ablation import Trial
from diptych.training.data import Splits
from diptych.training.held_features import hold, hold_splits
from diptych.training.optimisation import OptimiserConfig
from diptych.training.recipe import Recipe
from diptych.training.series import SCORES, SeriesEntry, record_folder, run_series
from diptych.training.trial_record import TrialRecord
from tests.training import toy
from tests.training.test_loop import ENVIRONMENT, ROOT

HOLD = """
import sys
from pathlib import Path
from diptych.training.claim import alone

with alone(Path(sys.argv[1])) as free:
    print(free, flush=True)
    sys.stdin.read()
"""
CPU = torch.device("cpu")
FOLD = 4


@pytest.fixture
def splits() -> Splits:
    found = hold_splits(toy.splits(), CPU)
    return replace(found, test=hold(found.test, CPU))


def entry(out: Path, variant: str = "main", seed: int = 0, whole: bool = False, **training: object) -> SeriesEntry:
    recipe: Recipe = toy.recipe(**{"epochs": 1, "hold_features": True, "seed": seed, **training})
    return SeriesEntry(Trial(variant, seed, recipe, out / "runs" / variant / f"seed-{seed}"), whole)


def record(out: Path, one: SeriesEntry) -> TrialRecord:
    return TrialRecord.load(record_folder(out / "results", one.trial) / "trial.json")


def test_every_trial_leaves_its_figures_and_is_not_done_again(
    splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [entry(tmp_path, whole=True), entry(tmp_path, "other", batch_size=4)]
    end = run_series(entries, tmp_path / "results", splits, "cpu", fold=FOLD)
    assert (len(end.done), end.failed, end.left) == (2, (), ())
    whole, folds = (record(tmp_path, one) for one in entries)
    matcher = Matcher.from_pretrained(entries[0].trial.run / "best")
    assert whole.figures["rsum"] == pytest.approx(evaluate_matcher(matcher, toy.splits().test)["rsum"])
    assert "rsum" not in folds.figures
    assert folds.figures["coco-1k/rsum"] > 0
    assert (whole.pairs, folds.pairs) == (8 * 16, 2 * 4 * 8)
    assert (whole.steps, folds.steps) == (4, 8)
    assert whole.queries == folds.queries
    assert len(whole.validation) == 1
    assert any("eccv" in note for note in whole.notes)  # the toy's pictures are not COCO's

    def fail(*arguments: object, **named: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(series, "train", fail)
    assert run_series(entries, tmp_path / "results", splits, "cpu", fold=FOLD) == end


def test_folds_of_all_scores_and_folds_alone_give_the_same_figures(splits: Splits, tmp_path: Path) -> None:
    entries = [entry(tmp_path / str(whole), whole=whole) for whole in (True, False)]
    for one, place in zip(entries, ("a", "b"), strict=True):
        run_series([one], tmp_path / place / "results", splits, "cpu", fold=FOLD)
    both = [record(tmp_path / place, one) for one, place in zip(entries, ("a", "b"), strict=True)]
    names = [name for name in both[1].figures if name.startswith("coco-1k/")]
    assert names
    assert [both[0].figures[name] for name in names] == pytest.approx([both[1].figures[name] for name in names])


def test_records_are_compared_like_runs_over_their_seeds(splits: Splits, tmp_path: Path) -> None:
    entries = [entry(tmp_path, variant, seed) for variant in ("main", "other") for seed in (0, 1)]
    run_series(entries, tmp_path / "results", splits, "cpu", fold=FOLD)
    folders = [str(tmp_path / "results" / "toy" / variant) for variant in ("main", "other")]
    found = {folder: load_evaluations(seeds_of(folder)) for folder in folders}
    assert [len(each) for each in found.values()] == [2, 2]
    gap = compare(found, draws=50, permutations=50).differences["coco-1k/rsum"][folders[1]]
    assert (gap.value, gap.p) == (0, 1)  # the same recipe, with the same seeds


def test_what_is_kept_of_each_query_is_small_and_whole(splits: Splits, tmp_path: Path) -> None:
    one = entry(tmp_path)
    run_series([one], tmp_path / "results", splits, "cpu", fold=FOLD)
    folder = record_folder(tmp_path / "results", one.trial) / "evaluations"
    kept = Evaluation.load(folder / "coco-1k-test.json").per_query
    assert {values.dtype for values in kept.values() if values.dtype.kind in "iu"} == {np.dtype(np.uint8)}
    assert not [key for key in kept if key.endswith("_ids")]
    assert len(kept["t2i/optimistic"]) == 16


@pytest.mark.parametrize("text", ['{"star', "[]", "{}"])
def test_a_damaged_account_of_earlier_starts_costs_nothing(text: str, splits: Splits, tmp_path: Path) -> None:
    one = entry(tmp_path)
    one.trial.run.mkdir(parents=True)
    (one.trial.run / "environment.json").write_text(text)
    assert run_series([one], tmp_path / "results", splits, "cpu", fold=FOLD).failed == ()
    assert record(tmp_path, one).steps == 4
    assert (one.trial.run / "environment.json.damaged").read_text() == text


def test_scores_of_every_pair_stay_beside_the_run(splits: Splits, tmp_path: Path) -> None:
    one = entry(tmp_path, whole=True)
    run_series([one], tmp_path / "results", splits, "cpu", fold=FOLD)
    assert np.load(one.trial.run / SCORES).shape == (8, 16)


def test_when_the_time_is_over_nothing_new_begins(splits: Splits, tmp_path: Path) -> None:
    entries = [entry(tmp_path), entry(tmp_path, "other")]
    end = run_series(entries, tmp_path / "results", splits, "cpu", time.monotonic(), FOLD)
    assert (end.done, len(end.left)) == ((), 2)
    assert not entries[0].trial.run.exists()


def test_a_trial_that_the_time_ended_goes_on(splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry(tmp_path), entry(tmp_path, "other")]
    with monkeypatch.context() as patch:
        clock = iter([0.0, 1.0, 2.0])
        patch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        patch.setattr(series, "time", SimpleNamespace(monotonic=lambda: 0.0, perf_counter=time.perf_counter))
        end = run_series(entries, tmp_path / "results", splits, "cpu", 2.0, FOLD)
    assert (end.done, len(end.left)) == ((), 2)
    end = run_series(entries, tmp_path / "results", splits, "cpu", fold=FOLD)
    assert end.left == ()
    assert [record(tmp_path, one).steps for one in entries] == [4, 4]


@pytest.mark.parametrize(
    "ending", [{}, {"epochs": 50, "patience": 1, "optimiser": OptimiserConfig(lr=1e-9)}], ids=["epochs", "patience"]
)
def test_without_time_to_score_a_trained_matcher_is_judged_later(
    ending: dict[str, object], splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "_most_memory", lambda *arguments: 1)
    # One whose patience ended is begun again, with nothing left to train.
    one, other = entry(tmp_path, **ending), entry(tmp_path, "other")
    with monkeypatch.context() as patch:
        patch.setattr(series, "_seconds_of_a_sample", lambda *arguments: 1e6)
        end = run_series([one], tmp_path / "results", splits, "cpu", time.monotonic() + 600, FOLD)
    assert len(end.left) == 1
    assert (one.trial.run / "best").exists()
    assert run_series([one, other], tmp_path / "results", splits, "cpu", fold=FOLD).left == ()
    # What training took of memory is told of those alone that were trained in the same breath.
    assert [record(tmp_path, each).train_bytes for each in (one, other)] == [None, 1]


def test_what_another_process_is_at_is_left_to_it(splits: Splits, tmp_path: Path) -> None:
    entries = [entry(tmp_path), entry(tmp_path, "other")]
    name = str(entries[0].trial.run / series.LOCK)
    with subprocess.Popen([sys.executable, "-c", HOLD, name], cwd=ROOT, env=ENVIRONMENT, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        end = run_series(entries, tmp_path / "results", splits, "cpu", fold=FOLD, at_once=2)
        assert not (entries[0].trial.run / "recipe.json").exists()
        other.communicate("")
    assert (end.done, end.failed, end.left) == ((entries[1].name,), (), (entries[0].name,))
    assert record(tmp_path, entries[1]).at_once == 2
    end = run_series(entries, tmp_path / "results", splits, "cpu", fold=FOLD)
    assert end.left == ()
    assert record(tmp_path, entries[0]).at_once == 1


def test_a_trial_that_fails_is_told_and_the_next_one_runs(splits: Splits, tmp_path: Path) -> None:
    broken = entry(tmp_path, "broken", multipliers={"nothing": 0.1})
    end = run_series([broken, entry(tmp_path)], tmp_path / "results", splits, "cpu", fold=FOLD)
    assert len(end.done) == 1
    assert "nothing" in end.failed[0]
    assert end.left == ()


def test_a_record_says_what_was_changed_of_the_recipe(splits: Splits, tmp_path: Path) -> None:
    one = entry(tmp_path)
    changed = replace(one.trial, recipe=replace(one.trial.recipe, changed=("training.epochs",)))
    one = replace(one, trial=changed)
    run_series([one], tmp_path / "results", splits, "cpu", fold=FOLD)
    assert "training.epochs was changed of the recipe" in record(tmp_path, one).notes


def test_a_damaged_record_names_its_field(splits: Splits, tmp_path: Path) -> None:
    one = entry(tmp_path)
    run_series([one], tmp_path / "results", splits, "cpu", fold=FOLD)
    path = record_folder(tmp_path / "results", one.trial) / "trial.json"
    path.write_text(path.read_text().replace('"steps": 4', '"steps": "four"'))
    with pytest.raises(DiptychError, match=r"steps"):
        TrialRecord.load(path)
