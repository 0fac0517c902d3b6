import numpy as np
import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.data.scenes import SceneFeatures, captioned
from diptych.explain.truth import attention_on_truth, naming_words
from tests.explain.hand_made import Knowing, knowing

SCENE = captioned(0, 3)


def told(wrong: int = 0) -> Knowing:
    """Every naming word looks at the first region that shows its thing, but for the first `wrong` of them."""
    features, caption = SceneFeatures([SCENE.scene]), SCENE.captions[0]
    things = features.things(0)
    matcher = knowing([caption.text], features.dim)
    weights = torch.full((len(caption.words) + 2, len(things)), 0.01)
    number = 0
    for place, names in enumerate(caption.names):
        if names:
            aim = things.index(names[0]) if number >= wrong else things.index(-1)
            weights[place + 1, aim] = 0.9
            number += 1
    matcher.weights = weights
    return matcher


def test_attention_that_is_right_is_counted_as_right() -> None:
    naming = [names for names in SCENE.captions[0].names if names]
    found = attention_on_truth(told(), [SCENE], left_out=False)
    assert found["words"] == len(naming)
    assert found["words/word_to_region"] == 1
    things = SceneFeatures([SCENE.scene]).things(0)
    assert found["words/chance"] == pytest.approx(np.mean([things.count(n[0]) / len(things) for n in naming]))
    assert found["words/chance"] < 0.7
    assert "words/together" not in found


def test_attention_on_the_whole_picture_is_wrong() -> None:
    naming = [names for names in SCENE.captions[0].names if names]
    found = attention_on_truth(told(wrong=2), [SCENE], left_out=False)
    assert found["words/word_to_region"] == pytest.approx(1 - 2 / len(naming))


def test_attention_that_looks_everywhere_does_as_well_as_chance() -> None:
    matcher = told()
    matcher.weights = torch.full_like(matcher.weights, 0.2)
    found = attention_on_truth(matcher, [SCENE], left_out=False)
    assert found["words/word_to_region"] == pytest.approx(found["words/chance"])


def test_cells_show_what_lies_in_them() -> None:
    matcher = told()
    words, cells = matcher.weights.shape[0], 37
    matcher.weights = torch.full((words, cells), 0.1)
    found = attention_on_truth(matcher, [SCENE], regions="grid", left_out=True)
    assert found["words/word_to_region"] == pytest.approx(found["words/chance"])
    assert 0 < found["words/chance"] < 0.5
    assert {"words/together", "regions/region_drop", "regions/chance"} <= set(found)


def test_words_are_found_again_past_punctuation() -> None:
    caption = SCENE.captions[0]
    words = [w for word in caption.words for w in (word.capitalize(), ",")]
    named = naming_words(words, caption)
    assert [words[place].lower() for place, _ in named] == [
        w for w, names in zip(caption.words, caption.names, strict=True) if names
    ]
    with pytest.raises(DiptychError, match="where the truth has"):
        naming_words(["unicorn", *caption.words[1:]], caption)
