import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from diptych.evaluation.evaluate import evaluate_scores
from diptych.evaluation.published import published
from diptych.evaluation.result import Evaluation
from diptych.report.recall import HEADINGS, recall_section
from diptych.report.run_folder import RunFolder, read_run
from tests.report import runs


def evaluation(protocol: str, count: int = 9, seed: int = 0) -> Evaluation:
    scores = np.random.default_rng(seed).normal(size=(count, 5 * count))
    ids = [f"p{i}" for i in range(count)], [f"p{i}#{j}" for i in range(count) for j in range(5)]
    return evaluate_scores(scores, None, protocol, *ids).described(split="test")


def run_with(folder: Path, paper: str | None, row: str | None, *saved: Evaluation) -> RunFolder:
    run = runs.write_run(folder / "run", runs.recipe(runs.KINDS["vse++"], paper=paper, row=row), ["a dog"])
    for each in saved:
        each.save(run / "evaluations")
    return read_run(run)


def rows(html: str) -> dict[str, list[str]]:
    found = {}
    for name, cells in re.findall(r'<tr class="[^"]*"><th scope="row">(.*?)</th>(.*?)</tr>', html):
        found[re.sub("<.*", "", name)] = re.findall(r"<td>(.*?)</td>", cells)
    return found


def test_the_run_beside_the_paper_s_row_and_the_difference(tmp_path: Path) -> None:
    ours = replace(evaluation("flickr30k"), images=1000, sentences=5000)  # as many as the paper had
    told = rows(recall_section(run_with(tmp_path, "camp/table-3", "CAMP", ours), None, None).body)
    theirs = published("camp/table-3").row("CAMP")
    assert told["This run"] == [f"{ours[key]:.1f}" for key in HEADINGS]
    for place, key in enumerate(HEADINGS):
        value = theirs.values.get(key)
        if value is None:
            continue
        assert float(told["Paper: CAMP"][place]) == value
        assert float(told["This run − paper"][place]) == pytest.approx(ours[key] - value, abs=0.051)
    assert told["This run, validation"][-1] == "105.0"


def test_an_evaluation_of_other_pictures_is_said_and_not_subtracted(tmp_path: Path) -> None:
    html = recall_section(run_with(tmp_path, "camp/table-3", "CAMP", evaluation("flickr30k")), None, None).body
    assert "row is of 1,000 pictures, and this run&#39;s evaluation of 9" in html
    assert "This run − paper" not in html


def test_a_table_without_a_row_and_a_changed_recipe_stand_beside_nothing(tmp_path: Path) -> None:
    ours = replace(evaluation("flickr30k"), images=1000)
    html = recall_section(run_with(tmp_path / "a", "camp/table-3", None, ours), None, None).body
    assert "Paper:" not in html
    told = replace(runs.recipe(runs.KINDS["vse++"], paper="camp/table-3", row="CAMP"), changed=("training.epochs",))
    run = runs.write_run(tmp_path / "b" / "run", told, ["a dog"])
    html = recall_section(read_run(run), None, None).body
    assert "are left out: training.epochs was changed, so this is not the paper&#39;s run" in html
    assert "Paper:" not in html


def test_another_protocol_is_said_and_not_subtracted(tmp_path: Path) -> None:
    html = recall_section(run_with(tmp_path, "camp/table-3", "CAMP", evaluation("all-pairs")), None, None).body
    assert "measured under flickr30k, and this run under all-pairs" in html
    assert "<code>diptych evaluate RUN --protocol flickr30k</code>" in html
    assert "This run − paper" not in html


def test_no_paper_no_evaluation_no_such_row(tmp_path: Path) -> None:
    html = recall_section(run_with(tmp_path / "a", None, None), None, None).body
    assert "No paper reports numbers for this recipe on drawn scenes" in html
    assert "has no saved evaluation" in html
    html = recall_section(run_with(tmp_path / "b", "camp/table-3", "Nobody"), None, None).body
    assert "camp/table-3: no row 'Nobody'; expected one of" in unescape(html)
    html = recall_section(run_with(tmp_path / "c", "nobody/table-1", "Nobody"), None, None).body
    assert "no such published table" in html


def test_an_evaluation_that_the_model_does_not_bear_out(tmp_path: Path) -> None:
    subject = runs.subject("vse++")
    measured = subject.evaluate()
    same = measured.described(split="test")
    html = recall_section(run_with(tmp_path / "a", None, None, same), subject, measured).body
    assert "renews it" not in html
    assert "measured for this report" not in html
    other = evaluation("all-pairs", seed=3)
    assert abs(other["rsum"] - measured["rsum"]) > 1
    html = recall_section(run_with(tmp_path / "b", None, None, other), subject, measured).body
    assert f"has an RSUM of {other['rsum']:.1f}, and the model now {measured['rsum']:.1f}" in html
    assert "measured for this report on the test split: 9 pictures, 45 sentences (all)" in html
