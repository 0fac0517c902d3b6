import json

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.evaluation.compare import compare
from diptych.evaluation.evaluate import evaluate_scores
from diptych.evaluation.published import published, published_tables
from diptych.evaluation.result import Evaluation
from diptych.evaluation.tables import (
    FORMATS,
    FigureTable,
    comparison_table,
    evaluation_table,
    published_table,
    render,
)

TABLE = FigureTable(("method", "a|b", "R@1 %"), (("x_1 ∞", 1.25, None), ("y", "7?", 10.0)), "Title", ("a note",))


def evaluation(protocol: str = "flickr30k", seed: int = 0) -> Evaluation:
    return evaluate_scores(np.random.default_rng(seed).normal(size=(8, 16)), np.arange(16) // 2, protocol)


def test_text() -> None:
    assert render(TABLE).splitlines() == [
        "Title",
        "method  a|b  R@1 %",
        "------  ---  -----",
        "x_1 ∞   1.2      -",
        "y        7?   10.0",
        "a note",
    ]


def test_markdown() -> None:
    assert render(TABLE, "markdown").splitlines() == [
        "**Title**",
        "",
        "| method | a\\|b | R@1 % |",
        "| --- | ---: | ---: |",
        "| x_1 ∞ | 1.2 | - |",
        "| y | 7? | 10.0 |",
        "",
        "a note",
    ]


def test_latex() -> None:
    lines = render(TABLE, "latex").splitlines()
    assert lines[1] == r"\begin{tabular}{lrr}"
    assert r"x\_1 $\infty$ & 1.2 & - \\" in lines
    assert r"method & a|b & R@1 \% \\" in lines
    assert lines[-1] == "% a note"


def test_json_is_one_object_of_rows() -> None:
    tree = json.loads(render(TABLE, "json"))
    assert tree["rows"][0] == {"method": "x_1 ∞", "a|b": 1.25, "R@1 %": None}


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(DiptychError, match="did you mean 'markdown'"):
        render(TABLE, "markdwon")


def test_ours_stands_beside_the_paper_s_rows() -> None:
    ours = evaluation()
    table = evaluation_table({"mine": ours}, published("camp/table-3"))
    assert table.columns == ("method", "i2t/r@1", "i2t/r@5", "i2t/r@10", "t2i/r@1", "t2i/r@5", "t2i/r@10")
    assert table.rows[0] == ("CAMP", 68.1, 89.7, 95.2, 51.5, 77.1, 85.3)
    assert table.rows[-1] == ("mine", *(ours[key] for key in table.columns[1:]))
    assert len(table.rows) == 13
    assert "CAMP: Cross-Modal" in table.notes[0]


def test_doubtful_numbers_are_marked() -> None:
    table = evaluation_table({"mine": evaluation()}, published("mmca/table-1"))
    row = next(row for row in table.rows if str(row[0]).startswith("VSE++"))
    assert row[1:4] == (52.9, "87.2?", None)


def test_only_rows_of_the_same_protocol() -> None:
    table = evaluation_table({"mine": evaluation()}, published("vse-infinity/table-4"))
    assert len(table.rows) == 24
    assert table.columns[-1] == "rsum"
    with pytest.raises(DiptychError, match="has rows for coco-5k; expected flickr30k"):
        evaluation_table({"mine": evaluation()}, published("vse-infinity/table-5"))
    with pytest.raises(DiptychError, match="has no rows for any protocol"):
        evaluation_table({"mine": evaluation()}, published("vse-infinity/table-6"))


def test_ties_are_told_under_the_table() -> None:
    tied = evaluate_scores(np.zeros((4, 8)), np.arange(8) // 2)
    notes = evaluation_table({"flat": tied}).notes
    assert "flat: t2i/r@1 is between 0.00 and 100.00, since scores are tied" in notes


@pytest.mark.parametrize("format", FORMATS)
def test_comparisons_and_papers_in_every_format(format: str) -> None:
    comparison = compare({"a": evaluation(seed=1), "b": evaluation(seed=2)}, draws=20, permutations=20)
    shown = render(comparison_table(comparison), format)
    assert "flickr30k/rsum" in shown or "flickr30k/rsum".replace("_", r"\_") in shown
    for table in published_tables().values():
        assert render(published_table(table), format)
