import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.data.batches import Tokens, pad_regions
from diptych.data.collection import Regions
from diptych.explain.explain import explain, nearest_sentences
from diptych.matchers.camp import CAMP
from diptych.matchers.dive import DivE
from diptych.matchers.mmca import MMCA
from diptych.matchers.scan import SCAN
from diptych.matchers.vse import VSE
from tests.explain.hand_made import case
from tests.matchers.cases import CASES
from tests.matchers.inputs import FEATURE_DIM

SENTENCE = "two dogs sit left of the unicorn"
CLOSE = {"atol": 2e-5, "rtol": 1e-4}


def regions(count: int = 4) -> Regions:
    vectors = np.random.default_rng(5).normal(size=(count, FEATURE_DIM)).astype(np.float32)
    return Regions(vectors, np.array([[i, i, i + 5, i + 7] for i in range(count)], dtype=np.float32), (20, 20))


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_matcher_is_explained_in_arrays_of_the_right_shape(name: str, tiny_bert: str) -> None:
    matcher = case(name, tiny_bert)
    found = explain(matcher, regions(), SENTENCE, sentences=["a red dog", "dog"])
    assert found.score == pytest.approx(float(matcher.similarity([regions()], [SENTENCE])), abs=1e-5)
    sizes = {"words": len(found.words), "regions": 4}
    if isinstance(matcher, DivE):
        sizes |= {"slots": matcher.config.slots, "iterations": matcher.config.iterations}
        assert [len(slot) for slot in found.nearest] == [2] * matcher.config.slots
    assert {"word_drop", "region_drop", "together"} <= set(found.arrays())
    for array_name, shown in found.shown.items():
        assert shown.values.shape == tuple(sizes[axis] for axis in shown.axes), array_name
        assert shown.values.dtype == np.float32
        assert np.isfinite(shown.values).all()
    told = json.loads(json.dumps(found.to_json()))
    assert told["arrays"]["together"]["shape"] == [len(found.words), 4]
    np.testing.assert_allclose(told["arrays"]["together"]["values"], found.array("together"), rtol=1e-6)
    for view in (found.looks(), found.answers(), found.whole(), found.strength()):
        assert view is not None
    looks, answers = found.looks(), found.answers()
    assert looks is not None
    assert looks[1].min() >= 0
    assert answers is not None
    assert answers[1].shape == (4, len(found.words))


@pytest.mark.parametrize(
    "name", ["camp", "scan-t2i-mean", "scan-i2t-lse-bert", "mmca", "dive-bert-cls", "vse-infinity-bert"]
)
def test_one_region_and_one_word(name: str, tiny_bert: str) -> None:
    found = explain(case(name, tiny_bert), regions(1), "dog")
    assert found.words == ("dog",)
    assert found.array("region_drop") is None  # nothing would be left of the picture
    drop = found.array("word_drop")
    assert drop is not None
    assert np.isfinite(drop).all()


def test_camp_s_arrays_are_the_matcher_s_own(tiny_bert: str) -> None:
    matcher = case("camp", tiny_bert)
    assert isinstance(matcher, CAMP)
    found = explain(matcher, regions(), "a red dog", left_out=False)
    seen = matcher.see(matcher.encode_images([regions()]), matcher.encode_texts(["a red dog"]))
    # <start> and <end> are not shown.
    assert found.words == ("a", "red", "dog")
    for name in ("word_to_region", "word_gates", "word_weights"):
        np.testing.assert_allclose(found.array(name), seen[name].values[0, 0, 1:4].detach(), **CLOSE)
    drawn = seen["region_to_word"].values[0, 0, :, 1:4].detach()
    np.testing.assert_allclose(found.array("region_to_word"), drawn, **CLOSE)
    assert found.array("word_drop") is None


def test_pieces_of_a_word_are_one_again(tiny_bert: str) -> None:
    matcher = case("scan-t2i-mean-bert", tiny_bert)
    assert isinstance(matcher, SCAN)
    # [CLS] two dog ##s sits [SEP]
    found = explain(matcher, regions(), "Two dogs sits", left_out=False)
    seen = matcher.see(matcher.encode_images([regions()]), matcher.encode_texts(["two dogs sits"]))
    weights = seen["word_to_region"].values[0, 0].detach().numpy()
    assert found.words == ("Two", "dogs", "sits")
    np.testing.assert_allclose(
        found.array("word_to_region"), [weights[1], (weights[2] + weights[3]) / 2, weights[4]], **CLOSE
    )


def test_of_mmca_what_leaving_out_tells_is_shown_first(tiny_bert: str) -> None:
    found = explain(case("mmca-gru", tiny_bert), regions(), "a red dog")
    attention = {name: shown for name, shown in found.shown.items() if name != "together"}
    looks, answers, alone = found.looks(), found.answers(), replace(found, shown=attention).looks()
    assert looks is not None
    assert answers is not None
    assert alone is not None
    assert (looks[0], answers[0], alone[0]) == ("together", "together", "word_to_region")
    np.testing.assert_array_equal(answers[1], looks[1].T)


def test_mmca_shows_self_attention_too(tiny_bert: str) -> None:
    matcher = case("mmca-gru", tiny_bert)
    assert isinstance(matcher, MMCA)
    found = explain(matcher, regions(), "a red dog", left_out=False)
    among = found.array("region_to_region")
    assert among is not None
    np.testing.assert_allclose(among.sum(1), 1, atol=1e-5)
    alone = explain(case("mmca-alpha-0-gru", tiny_bert), regions(), "a red dog")
    assert alone.array("word_to_region") is None
    looks = alone.looks()
    assert looks is not None
    assert looks[0] == "together"


def test_vse_shows_which_regions_and_words_won(tiny_bert: str) -> None:
    matcher = case("vse-infinity", tiny_bert)
    assert isinstance(matcher, VSE)
    found = explain(matcher, regions(), "a red dog")
    share, words = found.array("region_share"), found.array("word_share")
    assert share is not None
    assert share.sum() == pytest.approx(1, abs=1e-5)
    assert matcher.text_gpo is not None
    with matcher.inference():
        tokens = matcher.text_encoder(matcher.tokenizer.pad([matcher.tokenizer.ids("a red dog")]))
        expected = matcher.text_gpo.contributions(tokens.vectors, tokens.mask)[0, 1:4]
    np.testing.assert_allclose(words, expected, **CLOSE)
    assert explain(case("vse++", tiny_bert), regions(), "dog").array("word_share") is None


def test_slots_and_their_nearest_sentences_by_a_loop(tiny_bert: str) -> None:
    matcher = case("dive", tiny_bert)
    assert isinstance(matcher, DivE)
    sentences = ["a red dog", "two dogs", "the boat and the cat", "dog"]
    found = explain(matcher, regions(), SENTENCE, sentences=sentences)
    held = found.array("slot_to_region")
    assert held is not None
    np.testing.assert_allclose(held.sum(-1), 1, atol=1e-5)
    images, texts = matcher.encode_images([regions()]), matcher.encode_texts(sentences)
    for slot, nearest in zip(images.vectors[0], found.nearest, strict=True):
        cosines = [max(float(slot @ element) for element in elements) for elements in texts.vectors]
        order = sorted(range(4), key=lambda i: -cosines[i])[:3]
        assert [sentence for sentence, _ in nearest] == [sentences[i] for i in order]
        assert [value for _, value in nearest] == pytest.approx([cosines[i] for i in order], abs=1e-5)
    assert len(nearest_sentences(images.vectors, texts.vectors, sentences, count=1)[0]) == 1


@pytest.mark.parametrize("name", ["camp", "scan-i2t-mean", "mmca", "dive", "vse-infinity", "vse++"])
def test_what_is_left_out_by_scoring_each_pair_on_its_own(name: str, tiny_bert: str) -> None:
    matcher = case(name, tiny_bert)
    whole = regions()
    sentence = "two dogs sits left" if name == "mmca" else "a red dog sits"
    found = explain(matcher, whole, sentence)

    def score(without_region: int | None, without_word: int | None) -> float:
        vectors = np.delete(whole.vectors, [] if without_region is None else without_region, 0)
        ids = matcher.tokenizer.ids(sentence)
        if without_word is not None:
            gone = [[1], [2, 3], [4], [5]] if name == "mmca" else [[1], [2], [3], [4]]
            ids = [t for i, t in enumerate(ids) if i not in gone[without_word]]
        tokens = Tokens(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool))
        with matcher.inference():
            return float(matcher.score(*matcher(pad_regions([vectors]), tokens)))

    s = score(None, None)
    words, count = range(4), range(4)
    np.testing.assert_allclose(found.array("word_drop"), [s - score(None, w) for w in words], **CLOSE)
    np.testing.assert_allclose(found.array("region_drop"), [s - score(r, None) for r in count], **CLOSE)
    expected = [[s - score(None, w) - score(r, None) + score(r, w) for r in count] for w in words]
    np.testing.assert_allclose(found.array("together"), expected, atol=5e-5, rtol=1e-3)


def test_explaining_leaves_the_matcher_as_it_was(tiny_bert: str) -> None:
    matcher = case("vse-infinity", tiny_bert).train()
    encoder, before = matcher.image_encoder, {k: v.clone() for k, v in matcher.state_dict().items()}
    explain(matcher, regions(), "dog")
    assert matcher.image_encoder is encoder
    assert matcher.training
    assert all(torch.equal(v, before[k]) for k, v in matcher.state_dict().items())


def test_what_cannot_be_explained_is_said(tiny_bert: str) -> None:
    matcher = case("vse++", tiny_bert)
    with pytest.raises(DiptychError, match="has no words"):
        explain(matcher, regions(), " ... ")
    with pytest.raises(DiptychError, match="expected at least one region"):
        explain(matcher, Regions(np.zeros((0, FEATURE_DIM), dtype=np.float32)), "dog")
