"""The program that makes the tables of "The papers' claims, on COCO": what it names exists, and its words are right."""

import argparse
import importlib.util
import json
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.evaluation.evaluate import evaluate_matcher, evaluate_scores
from diptych.evaluation.protocols import evaluate_source
from diptych.evaluation.published import published
from diptych.evaluation.sources import MatrixSource
from diptych.matchers.base import Matcher
from diptych.training.ablation import Trial
from diptych.training.held_features import hold, hold_splits
from diptych.training.loop import Device, train
from diptych.training.recipe import read_recipe, variant_names
from diptych.training.series import SCORES, SeriesEntry
from diptych.training.trial_record import TrialRecord
from tests.training import toy

ROOT = Path(__file__).parent.parent
PICTURES = 30


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    sys.path.insert(0, str(path.parent))  # as Python does for a program: it may import its neighbours
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


tables = load(ROOT / "docs" / "_make" / "papers_on_coco.py")
program = load(ROOT / "benchmarks" / "papers_on_coco.py")
alone = sys.modules["coco_alone"]


def leave(results: Path, recipe: str, variant: str, seed: int, clean: float, rate: float = 400) -> TrialRecord:
    """A record as the program would leave it, of scores that are more or less clean."""
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(PICTURES), 5)
    scores = clean * (np.arange(PICTURES)[:, None] == owners) + rng.normal(size=(PICTURES, 5 * PICTURES))
    result = evaluate_source(MatrixSource(scores), owners, "coco-1k", fold=10)
    figures = evaluate_scores(scores, owners).figures | result.figures
    folder = results / f"{recipe}-coco-grid" / variant / f"seed-{seed}"
    result.described(split="test").save(folder / "evaluations")
    record = TrialRecord(
        f"{recipe}-coco-grid", variant, seed, 1000, 2600, 60.0, 1.0, 2.0, 4500, PICTURES, 5 * PICTURES, 8,
        (rate,), figures, "same", "a device",
    )  # fmt: skip
    record.save(folder / "trial.json")
    return record


def test_every_row_that_is_named_is_there() -> None:
    for claim in tables.CLAIMS:
        better, worse = (published(claim.table).row(row, claim.protocol) for row in claim.rows)
        for figure in claim.figures:
            assert (better.values[figure] or 0) > (worse.values[figure] or 0)
    for key, source in tables.ABLATIONS.items():
        change, recalls = tables.paper_change(key)
        assert (change is None) == (source is None)
        assert change is None or (change < 0 and recalls >= 4)  # each paper has its model above them


def test_the_first_pictures_of_each_split_are_taken(tmp_path: Path) -> None:
    splits = {"train": ["a", "b", "c"], "val": ["d", "e"], "test": ["f", "g"]}
    for split, names in splits.items():
        with tarfile.open(tmp_path / f"{split}-00.tar", "w") as tar:
            for name in names:
                (tmp_path / "p.png").unlink(missing_ok=True)
                Image.new("RGB", (8, 8), "red").save(tmp_path / "p.png")
                tar.add(tmp_path / "p.png", f"{name}.png")
                (tmp_path / "p.json").write_text(json.dumps({"captions": ["a red square"]}))
                tar.add(tmp_path / "p.json", f"{name}.json")
    asked = argparse.Namespace(data=tmp_path, training=None, validation=1)
    ids = [[Path(item.id).stem for item in part.items] for part in program.read_parts(asked)]
    assert ids == [["a", "b", "c"], ["d"], ["f", "g"]]
    asked.training = 1
    assert len(program.read_parts(asked)[0]) == 1
    (tmp_path / "val-00.tar").unlink()
    with pytest.raises(DiptychError, match="no pictures of the split 'val'"):
        program.read_parts(asked)


def test_tables_go_between_the_lines_that_name_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(tmp_path / "small", "vse++", "main", 0, 1.0)
    out = tmp_path / "page.md"
    lines = [line.format(name) for name in ("large", "small") for line in (tables.BEGIN, tables.END)]
    out.write_text("\n".join(["before", *lines, "after"]))
    monkeypatch.setattr(
        sys, "argv", ["", "--results", str(tmp_path / "small"), "--out", str(out), "--plots", str(tmp_path)]
    )
    tables.main()
    first = out.read_text()
    assert first.startswith("\n".join(["before", *lines[:3]]))
    assert first.endswith("\n".join([lines[3], "after"]))
    assert "| VSE++ |" in first
    tables.main()
    assert out.read_text() == first
    out.write_text("no room")
    with pytest.raises(DiptychError, match="small"):
        tables.main()


def test_every_variant_is_a_main_row_an_ablation_a_rate_or_a_longer_run() -> None:
    kinds = dict.fromkeys(kind for kind, _ in program.ROWS)
    found = {f"{k}/{v}" for k in kinds for v in variant_names(ROOT / "recipes" / f"{k}-coco-grid.toml")}
    rows = {f"{kind}/{variant}" for kind, variant in program.ROWS}
    assert rows == set(tables.NAMES)
    longer = {tables.changed(row, tables.LONGER) for row in rows}
    assert longer <= found
    assert {key for key in found - rows - longer if "rate-" not in key} == set(tables.ABLATIONS)
    parts = {key: program.part_of(key.split("/")[1]) for key in found - rows}
    assert {key for key, part in parts.items() if part == "longer"} == longer
    assert {key for key, part in parts.items() if part == "ablations"} == set(tables.ABLATIONS)
    assert set(tables.ALPHAS) - {"mmca/main"} <= found


@pytest.mark.parametrize("row", program.ROWS, ids=str)
@pytest.mark.parametrize(("name", "rate"), tables.RATES.items())
def test_the_rates_are_the_recipes_own(row: tuple[str, str], name: str, rate: str) -> None:
    kind, variant = row
    said = "-".join(word for word in ("" if variant == "main" else variant, name) if word)
    recipe = read_recipe(ROOT / "recipes" / f"{kind}-coco-grid.toml", said or None)
    assert recipe.training.optimiser.lr == float(rate)


def test_claims_are_shown_again_where_both_models_were_trained_longer(tmp_path: Path) -> None:
    for variant, clean in (("main", 0.5), ("longer", 3.0)):
        leave(tmp_path, "vse++", variant, 0, 0.5)
        leave(tmp_path, "vse-infinity", variant, 0, clean)
    leave(tmp_path, "camp", "main", 0, 0.5)
    record = leave(tmp_path, "camp", "longer", 0, 0.5)
    replace(record, steps=7800).save(tmp_path / "camp-coco-grid" / "longer" / "seed-0" / "trial.json")
    page = tables.page(tables.read_runs(tmp_path), tmp_path, tmp_path)
    assert "2,600 steps each" in page
    above = [line for line in page.splitlines() if line.startswith("| VSE∞ above VSE++")]
    assert [line.endswith("| holds | +0.0 |") for line in above] == [False, True]
    assert sum(line.startswith("| CAMP above VSE++") for line in page.splitlines()) == 2


def test_the_page_says_what_holds_and_what_does_not(tmp_path: Path) -> None:
    for seed in range(2):
        leave(tmp_path, "vse++", "main", seed, 0.5)
        leave(tmp_path, "vse-infinity", "main", seed, 3.0)
        leave(tmp_path, "camp", "main", seed, 0.5)
    leave(tmp_path, "camp", "no-gates", 0, 3.5)
    leave(tmp_path, "vse++", "rate-low", 0, 1.0, rate=450)
    page = tables.page(tables.read_runs(tmp_path), tmp_path, tmp_path)
    lines = page.splitlines()
    assert "over 2 seeds." in lines[0]
    holds = next(line for line in lines if line.startswith("| VSE∞ above VSE++"))
    assert holds.endswith("| holds |")
    same = next(line for line in lines if line.startswith("| CAMP above VSE++"))
    assert same.endswith("| not told apart |")
    turned = next(line for line in lines if line.startswith("| no-gates"))
    assert turned.endswith("| the other way round |")
    assert "-28.4 of 6 recalls" in turned
    assert any(line.startswith("| VSE++ | 450.0 | 400.0 |  | 5e-4 |") for line in lines)
    assert "SCAN" not in page  # nothing is said of what was not run


def test_times_of_runs_that_shared_the_device_say_so(tmp_path: Path) -> None:
    one = leave(tmp_path, "camp", "main", 0, 1.0)
    replace(one, at_once=4).save(tmp_path / "camp-coco-grid" / "main" / "seed-0" / "trial.json")
    page = tables.page(tables.read_runs(tmp_path), tmp_path, tmp_path)
    assert "timed of runs of which 4 shared the device" in page
    assert "| 23.1 ms | 444.44 µs |" in page


def test_times_alone_on_the_device_are_preferred_and_rounding_is_shown(tmp_path: Path) -> None:
    leave(tmp_path, "camp", "main", 0, 1.0)
    scores = {
        kind: {"seconds": seconds, **dict.fromkeys(tables.RECALLS, recall)}
        for kind, seconds, recall in (("float32", 0.009, 50.0), ("float16", 0.0045, 49.9))
    }
    row = {"step_seconds": 0.0125, "pairs": 4500, "scores": scores}
    write_json(tmp_path / "alone.json", {"device": "a device", "rows": {"camp-coco-grid/main": row}})
    page = tables.page(tables.read_runs(tmp_path), tmp_path, tmp_path)
    assert "timed with nothing else on the device" in page
    assert "| 12.5 ms | 1.00 µs |" in page
    assert "| CAMP | float16 | 49.9 | 49.9 | 49.9 | 49.9 | 49.9 | 49.9 | 4.5 ms |" in page


def test_what_another_machine_trained_is_trained_again_once(tmp_path: Path) -> None:
    splits = hold_splits(toy.splits(), torch.device("cpu"))
    splits = replace(splits, test=hold(splits.test, torch.device("cpu")))
    entry = SeriesEntry(Trial("main", 0, toy.recipe(epochs=1, hold_features=True), tmp_path / "run"), whole=True)
    args = argparse.Namespace(runs=tmp_path, device="cpu", fold=4)
    program.make_again(args, [entry], splits, None)
    made = (entry.trial.run / SCORES).stat().st_mtime_ns
    assert np.load(entry.trial.run / SCORES).shape == (len(splits.test), len(splits.test.captions()[0]))
    program.make_again(args, [entry], splits, None)
    assert (entry.trial.run / SCORES).stat().st_mtime_ns == made
    (entry.trial.run / SCORES).unlink()  # its record stays, and does not stand for what is gone
    assert program.make_again(args, [entry], splits, None).left == ()
    assert (entry.trial.run / SCORES).exists()


def test_every_slow_row_rescores_the_fast_ones_best(tmp_path: Path) -> None:
    splits = hold_splits(toy.splits(), torch.device("cpu"))
    splits = replace(splits, test=hold(splits.test, torch.device("cpu")))
    entries = []
    for seed, (kind, variant) in enumerate([program.FAST, ("scan", "i2t"), ("camp", "main")]):
        recipe = toy.recipe(epochs=1, hold_features=True, seed=seed)
        trial = Trial(variant, seed, replace(recipe, name=f"{kind}-coco-grid"), tmp_path / kind / variant)
        entries.append(SeriesEntry(trial, whole=True))
    args = argparse.Namespace(runs=tmp_path, results=tmp_path / "results", device="cpu", fold=4)
    program.make_again(args, entries, splits, None)
    assert program.rerank(args, entries, splits, torch.device("cpu")) == 0
    # SCAN's other direction and MMCA are no rows of this series.
    assert sorted(path.name for path in (args.results / "rerank").iterdir()) == ["camp-main.json", "scan-i2t.json"]
    found = read_json(args.results / "rerank" / "scan-i2t.json")
    assert (found["fast"], found["slow"]) == ("vse-infinity/main", "scan/i2t")
    assert len(found["points"]) == len(program.DEPTHS) * len(program.FUSIONS)
    # All rescored by the slow one's scores alone: what that one has by itself.
    whole = [point["rsum"] for point in found["points"] if (point["depth"], point["fusion"]) == (1.0, "replace")]
    record = read_json(tmp_path / "again" / "scan-coco-grid" / "i2t" / "seed-1" / "trial.json")
    assert whole == [pytest.approx(record["figures"]["coco-1k/rsum"])]
    (entries[1].trial.run / SCORES).unlink()
    (args.results / "rerank" / "scan-i2t.json").unlink()
    assert program.rerank(args, entries, splits, torch.device("cpu")) == 1  # left, for want of scores


@pytest.mark.parametrize("parts", [["alone"], ["ablations", "rates"], program.PARTS], ids=str)
def test_what_is_measured_on_the_main_rows_knows_them_in_every_part(
    parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["papers_on_coco.py", "--data", "nowhere", "--parts", *parts])
    first, others, _ = program.entries(program.arguments())
    assert len(first) == len(program.ROWS)
    assert len(others) == (14 if "main" in parts else 0)


def test_alone_waits_for_the_main_rows_and_trains_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data", "nowhere", "--results", str(tmp_path / "results"), "--parts", "alone", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["papers_on_coco.py", *arguments])
    splits = hold_splits(toy.splits(), torch.device("cpu"))
    monkeypatch.setattr(program, "read_parts", lambda *given: [])
    monkeypatch.setattr(program, "read_splits", lambda *given: splits)
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert "alone: not before the main rows with the first seed are done" in told
    assert "1 left" in told
    assert not (tmp_path / "results").exists()


def test_records_of_other_queries_do_not_stand_in_one_table(tmp_path: Path) -> None:
    leave(tmp_path, "vse++", "main", 0, 1.0)
    record = leave(tmp_path, "camp", "main", 0, 1.0)
    replace(record, queries="other").save(tmp_path / "camp-coco-grid" / "main" / "seed-0" / "trial.json")
    with pytest.raises(DiptychError, match="different test pictures"):
        tables.read_runs(tmp_path)
    with pytest.raises(DiptychError, match="no records"):
        tables.read_runs(tmp_path / "nowhere")


def test_what_was_measured_alone_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = hold_splits(toy.splits(), torch.device("cpu"))
    splits = replace(splits, test=hold(splits.test, torch.device("cpu")))
    recipe = toy.recipe(epochs=1, hold_features=True)
    trials = [Trial(variant, 0, recipe, tmp_path / variant) for variant in ("main", "untrained")]
    train(recipe, trials[0].run, Device("cpu"), splits)
    path = tmp_path / "alone.json"
    assert alone.measure_alone(trials, path, splits, torch.device("cpu"), None) == 1
    told = read_json(path)
    assert set(told["rows"]) == {"toy/main"}  # the other has no weights
    row = told["rows"]["toy/main"]
    assert row["pairs"] == len(splits.test) * len(splits.test.captions()[0])
    assert row["step_seconds"] > 0
    expected = evaluate_matcher(Matcher.from_pretrained(trials[0].run / "best"), splits.test)
    assert {key: row["scores"]["float32"][key] for key in tables.RECALLS} == pytest.approx(
        {key: expected[key] for key in tables.RECALLS}
    )
    monkeypatch.setattr(alone, "seconds_of_a_step", lambda *arguments: pytest.fail("measured again"))
    alone.measure_alone(trials, path, splits, torch.device("cpu"), None)
    assert read_json(path) == told
