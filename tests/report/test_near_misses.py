"""The confusion of near misses beside a loop over pairs, one picture and one sentence at a time."""

import re
from pathlib import Path

import pytest

from diptych.common.files import write_json
from diptych.data.scenes import SceneFeatures, near_miss_set
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.evaluation.near_misses import near_miss_figures
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher
from diptych.report.model_sections import near_miss_section
from diptych.report.near_misses import VALUES, confusions_of, drawn_seed, value_of
from diptych.training.data import FilesConfig, ScenesConfig
from tests.report import runs

PAIRS = near_miss_set(36, seed=5)


def matcher(kind: str) -> Matcher:
    words = [c.text for pair in PAIRS for c in (pair.sentence, pair.wrong)]
    return build_matcher(runs.KINDS[kind], WordTokenizer(Vocabulary.build(words, at_least=1))).eval()


@pytest.mark.parametrize("kind", ["vse++", "camp"])
def test_what_was_taken_for_what_agrees_with_a_loop(kind: str) -> None:
    model = matcher(kind)
    slow: dict[str, dict[tuple[str, str], list[bool]]] = {}
    for pair in PAIRS:
        features = SceneFeatures([pair.scene, pair.other])
        scores = model.similarity([features[0], features[1]], [pair.sentence.text, pair.wrong.text])
        cell = value_of(pair.sentence.statement, pair.attribute), value_of(pair.wrong.statement, pair.attribute)
        answers = [bool(scores[0, 0] > scores[0, 1]), bool(scores[0, 0] > scores[1, 0])]
        slow.setdefault(pair.attribute, {}).setdefault(cell, []).extend(answers)
    found = confusions_of(model, PAIRS)
    assert [c.attribute for c in found] == list(VALUES)
    for confusion in found:
        for i, true in enumerate(confusion.values):
            for j, other in enumerate(confusion.values):
                answers = slow[confusion.attribute].get((true, other), [])
                assert confusion.asked[i, j] == len(answers)
                assert confusion.wrong[i, j] == answers.count(False)
    figures = near_miss_figures(model, PAIRS)
    for confusion in found:
        assert confusion.right == pytest.approx(figures[f"near-miss/{confusion.attribute}"])


def test_every_count_is_on_the_page() -> None:
    found = confusions_of(matcher("scan"), PAIRS)
    html = near_miss_section(found, len(PAIRS)).body
    shown = re.findall(r'<td style="--w:([\d.]+)">(\d+)/(\d+)</td>', html)
    cells = [(w, a) for c in found for w, a in zip(c.wrong.ravel(), c.asked.ravel(), strict=True) if a]
    assert [(int(w), int(a)) for _, w, a in shown] == cells
    for strength, wrong, asked in shown:
        assert float(strength) == pytest.approx(0.75 * int(wrong) / int(asked), abs=0.006)
    for confusion in found:
        right, asked_one = confusion.by_sentence
        assert f"<td>{100 * right / asked_one:.1f}</td>" in html


def test_which_runs_have_near_misses(tmp_path: Path) -> None:
    assert drawn_seed(ScenesConfig(seed=7)) == 7
    assert drawn_seed(FilesConfig(path=str(tmp_path))) is None
    write_json(tmp_path / ".scenes-settings.json", {"seed": 3})
    assert drawn_seed(FilesConfig(path=str(tmp_path))) == 3
