"""CAMP against loops written from the paper's equations, for every ablation and every released module."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from diptych.common.config import parse
from diptych.common.errors import DiptychError
from diptych.data.batches import LocalFeatures, Tokens, pad_tokens
from diptych.matchers.camp import CAMP, CAMPConfig, released_config
from diptych.matchers.camp_parts import CAMPKept
from tests.matchers import camp_loops as loops
from tests.matchers import inputs
from tests.matchers.cases_camp import IMAGE, MIXED, PAPER, RELEASED, WORDS

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
# One word, a word twice, and ragged lengths; the regions of `inputs` hold a picture with one region.
SENTENCES = [[4], [1, 5, 2], [6, 6], [1, 7, 8, 9, 4, 5, 2], [2, 3, 4, 5]]
MODULES = {
    name: ("gate_fusion_new" if "new" in name else "gate_fusion" if "gate" in name else "cross_attention")
    for name in RELEASED
}


def build(config: CAMPConfig) -> CAMP:
    torch.manual_seed(5)
    matcher = CAMP(config, inputs.word_tokenizer())
    with torch.no_grad():
        for name, parameter in matcher.named_parameters():
            if name.endswith("bias") and "encoder" not in name:
                parameter.normal_(std=0.3)  # zero at first, where a forgotten bias would not show
    return matcher


def batch() -> tuple[LocalFeatures, Tokens]:
    return inputs.images(), pad_tokens(SENTENCES)


def sets(matcher: CAMP) -> tuple[list[loops.Vectors], list[loops.Vectors]]:
    """Every picture's regions and every sentence's words, by the loops."""
    pictures, _ = batch()
    V = [loops.regions(matcher, vectors[mask]) for vectors, mask in zip(pictures.vectors, pictures.mask, strict=True)]
    return V, [loops.words(matcher, ids) for ids in SENTENCES]


def loop_scores(name: str, matcher: CAMP) -> Tensor:
    V, T = sets(matcher)
    if name not in RELEASED:
        return torch.stack([torch.stack([loops.paper_pair(matcher, v, t).score for t in T]) for v in V])
    module, fusion = MODULES[name], matcher.config.joint
    ours = dict(matcher.named_parameters())
    weights = {theirs: ours[mine] for theirs, mine in loops.released_names(module).items()}
    for number in "12":
        last = "final_reduce" if module == "gate_fusion_new" else "reduce_layer"
        weights[f"{last}_{number}.linear.2.bias"] = torch.randn(4)  # of any value: softmax does not see it
    return torch.stack([torch.stack([loops.released_pair(module, fusion, weights, v, t) for t in T]) for v in V])


@pytest.mark.parametrize("name", [*PAPER, *RELEASED, *MIXED])
def test_scores_and_gradients_agree_with_the_loop(name: str) -> None:
    matcher = build({**PAPER, **RELEASED, **MIXED}[name])
    fast, slow = matcher.logits(*matcher(*batch())), loop_scores(name, matcher)
    torch.testing.assert_close(fast, slow, **CLOSE)
    assert slow.std() > 1e-3
    weights = torch.randn(slow.shape)
    names, parameters = zip(*matcher.named_parameters(), strict=True)
    ours, loop = (torch.autograd.grad((scores * weights).sum(), parameters) for scores in (fast, slow))
    for parameter, mine, other in zip(names, ours, loop, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4, msg=lambda m, p=parameter: f"{p}: {m}")


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_module_has_exactly_the_weights_of_its_table(name: str) -> None:
    matcher = build(RELEASED[name])
    pair_side = {n for n, _ in matcher.named_parameters() if "encoder" not in n}
    assert set(loops.released_names(MODULES[name]).values()) == pair_side


@pytest.mark.parametrize("name", ["camp", "camp-joint-embedding", "camp-base"])
def test_the_score_is_the_sigmoid_of_the_logit_for_the_mlp_alone(name: str) -> None:
    matcher = build(PAPER[name])
    images, texts = matcher(*batch())
    logits = matcher.logits(images, texts)
    expected = logits.sigmoid() if name == "camp" else logits
    torch.testing.assert_close(matcher.score(images, texts), expected, atol=0, rtol=0)


def test_the_base_model_keeps_one_vector_a_side() -> None:
    matcher = build(PAPER["camp-base"])
    images, texts = matcher(*batch())
    assert images.vectors.shape == (len(inputs.REGIONS), 1, 8)
    assert texts.vectors.shape == (len(SENTENCES), 1, 8)
    assert matcher.see(images, texts) == {}


@pytest.mark.parametrize(
    "name", ["camp", "camp-scalar-gate", "camp-without-cross-attention", "camp-without-gates", "camp-without-fusion"]
)
def test_attention_gates_and_weights_are_the_loops_own(name: str) -> None:
    matcher = build({**PAPER, **MIXED}[name])
    images, texts = matcher(*batch())
    shown = {field: view.values for field, view in matcher.see(images, texts).items()}
    V, T = sets(matcher)
    for i, v in enumerate(V):
        for j, t in enumerate(T):
            traced = loops.paper_pair(matcher, v, t)
            expected = {
                "region_to_word": torch.stack(traced.region_to_word),
                "word_to_region": torch.stack(traced.word_to_region),
                "region_weights": traced.region_weights,
                "word_weights": traced.word_weights,
            }
            if matcher.config.gate == "none":
                assert "region_gates" not in shown
                assert "word_gates" not in shown
            else:
                expected["region_gates"] = torch.stack(traced.region_gates)
                expected["word_gates"] = torch.stack(traced.word_gates)
            for field, real in expected.items():
                whole = shown[field][i, j]
                padded = torch.zeros_like(whole)
                padded[tuple(slice(size) for size in real.shape)] = real
                torch.testing.assert_close(whole, padded, **CLOSE)


def test_attention_of_the_revised_module_sums_to_one_over_what_is_real() -> None:
    matcher = build(RELEASED["camp-gate-fusion-new-concat"])
    images, texts = matcher(*batch())
    shown = matcher.see(images, texts)
    regions, words = shown["region_to_word"].values, shown["word_to_region"].values
    real = images.mask[:, None, :].expand(regions.shape[:3]).float()
    torch.testing.assert_close(regions.sum(-1), real, **CLOSE)
    assert (regions * ~texts.mask[None, :, None, :]).abs().max() == 0
    assert (words * ~images.mask[:, None, None, :]).abs().max() == 0


@pytest.mark.parametrize("name", ["camp", "camp-scalar-gate", "camp-without-cross-attention"])
def test_gate_figures_are_means_over_real_regions_and_words(name: str) -> None:
    matcher = build({**PAPER, **MIXED}[name]).eval()
    owners = torch.tensor([2, 0, 0, 4, 1])
    with matcher.inference():
        images, texts = matcher(*batch())
    figures = matcher.pair_figures(images, texts, owners)
    V, T = sets(matcher)
    traced = [loops.paper_pair(matcher, V[i], T[j]) for j, i in enumerate(owners.tolist())]
    regions = torch.stack([torch.stack(one.region_gates).mean() for one in traced]).mean().item()
    words = torch.stack([torch.stack(one.word_gates).mean() for one in traced]).mean().item()
    assert figures["gate/positive/regions"] == pytest.approx(regions, abs=1e-6)
    assert figures["gate/positive/words"] == pytest.approx(words, abs=1e-6)
    assert figures["gate/positive"] == pytest.approx((regions + words) / 2, abs=1e-6)
    assert figures["gate/negative"] == pytest.approx(
        (figures["gate/negative/regions"] + figures["gate/negative/words"]) / 2
    )
    assert figures == matcher.pair_figures(images, texts, owners)


def test_negatives_of_the_gate_figures_are_other_pictures_than_the_sentences_own() -> None:
    matcher = build(PAPER["camp"]).eval()
    with matcher.inference():
        images, texts = matcher(*batch())
    figures = matcher.pair_figures(images[:2], texts, torch.tensor([0, 1, 1, 0, 1]))
    other = matcher.pair_figures(images[:2], texts, torch.tensor([1, 0, 0, 1, 0]))  # of two pictures, the other one
    assert figures["gate/negative"] == pytest.approx(other["gate/positive"], abs=1e-7)
    assert figures["gate/negative/words"] == pytest.approx(other["gate/positive/words"], abs=1e-7)
    assert figures["gate/negative"] != pytest.approx(figures["gate/positive"], abs=1e-4)


def test_gate_figures_of_one_picture_have_no_negatives_and_without_gates_there_are_none() -> None:
    matcher = build(PAPER["camp"]).eval()
    with matcher.inference():
        images, texts = matcher(*batch())
    assert set(matcher.pair_figures(images[:1], texts[:2], torch.tensor([0, 0]))) == {
        "gate/positive",
        "gate/positive/regions",
        "gate/positive/words",
    }
    assert build(PAPER["camp-without-gates"]).pair_figures(images, texts, torch.zeros(5)) == {}


def test_gate_figures_in_parts_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = build(PAPER["camp"]).eval()
    with matcher.inference():
        images, texts = matcher(*batch())
    owners = torch.tensor([2, 0, 0, 4, 1])
    whole = matcher.pair_figures(images, texts, owners)
    monkeypatch.setattr(matcher, "pair_floats", lambda regions, words: 2**23)  # two pairs a part
    assert matcher.pair_figures(images, texts, owners) == pytest.approx(whole, abs=1e-6)


def test_a_gate_of_one_number_takes_the_fusion_out_of_the_pair() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    def flops(config: CAMPConfig) -> int:
        matcher = build(replace(config, dim=64))
        images, texts = matcher(*batch())
        with FlopCounterMode(display=False) as counter:
            matcher.logits(images, texts)
        return counter.get_total_flops()

    pairs, items = len(inputs.REGIONS) * len(SENTENCES), max(inputs.REGIONS) + max(map(len, SENTENCES))
    fusion = 2 * pairs * items * 64 * 64
    assert flops(PAPER["camp"]) > fusion
    assert flops(MIXED["camp-scalar-gate"]) < fusion
    assert flops(RELEASED["camp-cross-attention"]) < fusion


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"fusion": "none"}, "gate"),
        ({"fusion": "none", "gate": "none"}, "residual"),
        ({"messages": "none"}, "fusion"),
        ({"messages": "mean", "fusion": "none", "gate": "none", "residual": False}, "messages"),
        ({"messages": "mean", "affinity_dim": 4}, "affinity_dim"),
        ({"affinity_dim": 0}, "affinity_dim"),
        ({"dim": 0}, "dim"),
        ({"heads": 0}, "heads"),
        ({"revised": True, "messages": "mean"}, "revised"),
        ({"revised": True, "fusion": "none", "gate": "none", "residual": False}, "revised"),
        ({"similarity": "cosine", "joint": "concat"}, "joint"),
    ],
)
def test_options_that_make_no_sense_together_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}:"):
        CAMPConfig(**changes)
    with pytest.raises(DiptychError, match=f"^recipe: {named}:"):
        parse(CAMPConfig, changes, "recipe")


def test_released_modules_by_name() -> None:
    assert released_config("gate_fusion_new").revised
    assert released_config("gate_fusion").gate == "scalar"
    assert released_config("gate_fusion").joint == "concat"
    assert released_config("gate_fusion", "add").joint == "add"
    assert released_config("cross_attention", dim=8, image=IMAGE, text=WORDS).similarity == "cosine"


def test_what_is_kept_holds_only_what_the_options_need() -> None:
    images, _ = build(PAPER["camp"])(*batch())
    assert isinstance(images, CAMPKept)
    assert (images.keys.shape[-1], images.own.shape[-1], images.sent.shape[-1]) == (8, 0, 0)
    images, _ = build(MIXED["camp-scalar-gate"])(*batch())
    assert isinstance(images, CAMPKept)
    assert (images.keys.shape[-1], images.own.shape[-1], images.sent.shape[-1]) == (8, 8, 8)
