"""Gate histograms beside CAMP written as loops."""

import numpy as np
import pytest
import torch

from diptych.matchers.camp import CAMP
from diptych.report.gates import BINS, gate_pairs, gates_of
from diptych.report.model_sections import gates_section
from tests.matchers import camp_loops
from tests.report import runs


@pytest.mark.parametrize("case", ["camp", "camp-scalar-gate", "camp-without-cross-attention"])
def test_counts_agree_with_the_paper_s_equations(case: str) -> None:
    subject = runs.subject(case, 5)
    matcher = subject.matcher
    assert isinstance(matcher, CAMP)
    found = gates_of(subject)
    assert found is not None
    features = subject.collection.features
    assert features is not None
    slow: dict[str, dict[str, list[float]]] = {"regions": {}, "words": {}}
    with torch.no_grad():
        for kind, pairs in gate_pairs(subject).items():
            for picture, sentence in pairs:
                row = subject.collection.items[picture].row
                assert row is not None
                v = camp_loops.regions(matcher, torch.from_numpy(features[row].vectors))
                t = camp_loops.words(matcher, matcher.tokenizer.ids(subject.captions[sentence]))
                traced = camp_loops.paper_pair(matcher, v, t)
                slow["regions"].setdefault(kind, []).extend(float(g) for g in traced.region_gates)
                slow["words"].setdefault(kind, []).extend(float(g) for g in traced.word_gates)
    for side in ("regions", "words"):
        counts = found.counts(side)
        for kind in ("positive", "negative"):
            expected = [0] * BINS
            for gate in slow[side][kind]:
                expected[min(BINS - 1, int(gate * BINS))] += 1
            moved = np.abs(counts[kind] - expected).sum()  # a gate on a bin's edge may fall to either side
            assert moved <= 2 * sum(abs(g * BINS - round(g * BINS)) < 1e-4 for g in slow[side][kind])
            assert counts[kind].sum() == len(slow[side][kind])
            values = getattr(found, side)[kind]
            np.testing.assert_allclose(values, slow[side][kind], atol=1e-5)


def test_wrong_pairs_are_wrong_and_all_numbers_are_in_the_table() -> None:
    subject = runs.subject("camp", 6)
    pairs = gate_pairs(subject)
    assert all(subject.owners[j] == i for i, j in pairs["positive"])
    assert all(subject.owners[j] != i for i, j in pairs["negative"])
    assert [j for _, j in pairs["positive"]] == [j for _, j in pairs["negative"]]
    found = gates_of(subject)
    assert found is not None
    html = gates_section(found).body
    for side in ("regions", "words"):
        counts = found.counts(side)
        for i in range(BINS):
            row = f"<td>{counts['positive'][i]:,}</td><td>{counts['negative'][i]:,}</td>"
            assert f'<th scope="row">{i / BINS:.2f} to {(i + 1) / BINS:.2f}</th>{row}' in html


def test_without_gates_there_is_nothing() -> None:
    assert gates_of(runs.subject("camp-without-gates", 3)) is None
    assert gates_of(runs.subject("scan-t2i-mean", 3)) is None


def test_a_single_picture_has_no_wrong_pair() -> None:
    found = gates_of(runs.subject("camp", 1))
    assert found is not None
    assert list(found.regions) == ["positive"]
    assert "mean" in gates_section(found).body
