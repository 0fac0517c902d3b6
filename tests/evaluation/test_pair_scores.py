import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.evaluation import pair_scores
from diptych.evaluation.pair_scores import score_texts
from tests.evaluation import tiny


@pytest.mark.parametrize("case", ["vse++", "camp", "scan-t2i-mean", "dive"])
@pytest.mark.parametrize("together", [3, 128])
def test_scores_are_those_of_all_pairs(case: str, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.matchers.cases import CASES

    if case not in CASES:
        case = next(name for name in CASES if name.startswith(case.split("-")[0]))
    monkeypatch.setattr(pair_scores, "TOGETHER", together)
    collection, matcher = tiny.collection(7), tiny.matcher(case)
    texts = [[], ["a red dog", "a blue dog"], ["two cat"], ["a red dog", "a red dog"], [], ["dog"], ["boat", "dog"]]
    own, other = score_texts(matcher, collection, texts, batch_size=2)
    rows = [collection.features[row] for row in range(7)] if collection.features is not None else []
    images = matcher.encode_images(rows)
    for place, few in enumerate(texts):
        assert list(own[place]) == list(other[place]) == list(dict.fromkeys(few))
        for text in few:
            with matcher.inference():
                column = matcher.score(images, matcher.encode_texts([text]))[:, 0]
            assert own[place][text] == pytest.approx(float(column[place]), abs=1e-5)
            asked = [i for i, told in enumerate(texts) if told and i != place]
            assert min(abs(other[place][text] - float(column[i])) for i in asked) < 1e-5
            assert torch.isfinite(column).all()


def test_a_single_picture_has_no_other() -> None:
    own, other = score_texts(tiny.matcher(), tiny.collection(1), [["dog"]])
    assert list(own[0]) == ["dog"]
    assert other == [{}]


def test_texts_are_those_of_each_picture() -> None:
    with pytest.raises(DiptychError, match="each of 2 pictures"):
        score_texts(tiny.matcher(), tiny.collection(2), [["dog"]])
