"""Gradients of the pairs that count are those of all pairs scored with gradient."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from diptych.data.batches import LocalFeatures, Tokens
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher
from diptych.matchers.kept import Kept
from diptych.training import counted_scores
from diptych.training.counted_scores import batch_scores
from diptych.training.losses.base import Loss
from diptych.training.losses.bce import BCEConfig
from diptych.training.losses.catalog import LossConfig, build_loss
from diptych.training.losses.hinge import HingeConfig
from diptych.training.losses.info_nce import InfoNCEConfig
from diptych.training.terms.mmd import mmd
from tests.matchers.cases import CASES
from tests.matchers.inputs import FEATURE_DIM, word_tokenizer

N, M = 9, 12
OWNERS = torch.tensor([0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 8, 8])
LOSSES: dict[str, LossConfig] = {
    "bce-hardest": BCEConfig(),
    "bce-mean": BCEConfig(negatives="mean"),
    "hinge-hardest": HingeConfig(margin=0.5),
    "hinge-all": HingeConfig(margin=0.5, negatives="all", reduction="sum"),
    "infonce": InfoNCEConfig(),
}
TRIED = [
    ("camp", "bce-hardest"),
    ("camp", "bce-mean"),
    ("camp", "hinge-hardest"),
    ("camp-joint-embedding", "hinge-hardest"),
    ("camp-joint-embedding", "hinge-all"),
    ("camp-scalar-gate", "infonce"),
    ("camp-gate-fusion-new-concat", "bce-hardest"),
    ("scan-t2i-mean", "hinge-hardest"),
    ("scan-t2i-lse", "hinge-all"),
    ("scan-i2t-lse", "hinge-hardest"),
    ("mmca-gru", "hinge-hardest"),
    ("mmca-gru", "hinge-all"),
    ("mmca-shared-gru", "hinge-hardest"),
    ("dive-mp", "bce-hardest"),
]


@dataclass(frozen=True)
class Step:
    """What one backward pass found: the loss, the gradients of both sides and of every parameter, by name."""

    loss: Tensor
    sides: dict[str, Tensor | None]
    parameters: dict[str, Tensor | None]


def matcher_of(name: str) -> Matcher:
    torch.manual_seed(0)
    matcher = build_matcher(CASES[name], word_tokenizer())
    with torch.no_grad():
        for parameter in matcher.parameters():  # biases begin at 0, which would hide a mistake
            parameter.add_(0.1 * torch.randn_like(parameter))
    return matcher.eval()


def batch(n: int = N, m: int = M) -> tuple[LocalFeatures, Tokens]:
    """Ragged pictures and sentences; what lies at pads is not 0."""
    generator = torch.Generator().manual_seed(1)
    regions, words = torch.randint(1, 6, (n, 1), generator=generator), torch.randint(1, 8, (m, 1), generator=generator)
    regions[0], words[0] = 5, 7
    vectors = torch.randn(n, 5, FEATURE_DIM, generator=generator)
    ids = torch.randint(4, 12, (m, 7), generator=generator)
    return LocalFeatures(vectors, torch.arange(5) < regions), Tokens(ids, torch.arange(7) < words)


def step(
    matcher: Matcher, loss: Loss, counted: bool, rows: int | None = None, n: int = N, owners: Tensor = OWNERS
) -> Step:
    """One backward pass, all pairs with gradient or only those that count."""
    matcher.zero_grad(set_to_none=True)
    kept = matcher(*batch(n, len(owners)))
    tensors = {f"{side}.{k}": t for side, one in zip("it", kept, strict=True) for k, t in one.tensors().items()}
    for tensor in tensors.values():
        if tensor.requires_grad:
            tensor.retain_grad()
    if counted:
        scores = batch_scores(matcher, *kept, logits=loss.takes_logits, rows=rows)
    else:
        scores = (matcher.logits if loss.takes_logits else matcher.score)(*kept)
    value = loss(scores, owners, torch.arange(n)[:, None] == owners[None])
    value.backward()
    return Step(
        value.detach(),
        {name: tensor.grad for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel()},
        {name: parameter.grad for name, parameter in matcher.named_parameters()},
    )


def assert_same(found: Step, expected: Step) -> None:
    torch.testing.assert_close(found.loss, expected.loss)
    for ours, theirs in ((found.sides, expected.sides), (found.parameters, expected.parameters)):
        assert ours.keys() == theirs.keys()
        for name, gradient in theirs.items():
            got = ours[name]
            assert (got is None) == (gradient is None), name
            if got is not None and gradient is not None:
                close(got, gradient, name)


def close(found: Tensor, expected: Tensor, name: str) -> None:
    """To float32's rounding of the largest."""
    largest = max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(found, expected, atol=3e-6 * largest, rtol=1e-4, msg=lambda m: f"{name}: {m}")


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small a batch is, it is not scored with gradient at once."""
    monkeypatch.setattr(counted_scores, "PLAIN", 0)


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was scored with gradient: how, and how many pairs at a time."""
    calls: list[tuple[str, int]] = []

    def noted(name: str, call: Any) -> Any:
        def noting(self: Matcher, images: Kept, texts: Kept) -> Tensor:
            scores: Tensor = call(self, images, texts)
            if torch.is_grad_enabled():
                calls.append((name, scores.numel()))
            return scores

        return noting

    for kind in {type(matcher_of(name)) for name, _ in TRIED}:
        for name in ("score", "score_pairs", "logits", "logit_pairs"):
            if name in vars(kind):
                monkeypatch.setattr(kind, name, noted(name, vars(kind)[name]))
    return calls


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("few", [0.0, 1.0], ids=["blocks", "pairs"])
@pytest.mark.parametrize("work", [1, 1 << 14, 1 << 28])
@pytest.mark.parametrize(("name", "loss"), TRIED)
def test_gradients_are_those_of_all_pairs(
    name: str, loss: str, work: int, few: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_scores, "FEW", few)
    monkeypatch.setitem(counted_scores.WORK, "cpu", work)
    matcher, function = matcher_of(name), build_loss(LOSSES[loss])
    expected = step(matcher, function, counted=False)
    assert any(float(g.abs().max()) > 1e-3 for g in expected.parameters.values() if g is not None)
    assert_same(step(matcher, function, counted=True), expected)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("name", "loss"), TRIED)
def test_many_sentences_are_scored_by_like_length(name: str, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher, function, owners = matcher_of(name), build_loss(LOSSES[loss]), torch.arange(40) % N
    expected = step(matcher, function, counted=False, owners=owners)
    widths: list[int] = []
    asked = "logits" if function.takes_logits else "score"
    score = getattr(type(matcher), asked)

    def noting(self: Matcher, images: Kept, texts: Kept) -> Tensor:
        widths.append(texts.mask.shape[1])
        scores: Tensor = score(self, images, texts)
        return scores

    monkeypatch.setattr(type(matcher), asked, noting)
    assert_same(step(matcher, function, counted=True, owners=owners), expected)
    if name != "dive-mp":  # whose sets are all of one size
        assert len(set(widths)) > 1


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", ["camp", "mmca-gru"])
def test_of_the_hardest_negatives_only_the_pairs_that_count_are_differentiated(
    name: str, monkeypatch: pytest.MonkeyPatch, scored: list[tuple[str, int]]
) -> None:
    monkeypatch.setattr(counted_scores, "FEW", 0.5)
    matcher, function = matcher_of(name), build_loss(HingeConfig(margin=0.5))
    step(matcher, function, counted=True)
    ((how, pairs),) = [call for call in scored if call[0] != "logit_pairs"]
    assert how == "score_pairs"
    assert M < pairs <= 3 * M
    scored.clear()
    step(matcher, build_loss(LOSSES["hinge-all"]), counted=True)
    assert {how for how, _ in scored} <= {"score", "logits"}  # most pairs count
    assert max(pairs for _, pairs in scored) == N * M


@pytest.mark.usefixtures("always")
def test_parts_are_bounded_by_memory_and_by_rows(
    monkeypatch: pytest.MonkeyPatch, scored: list[tuple[str, int]]
) -> None:
    matcher, hardest, every = matcher_of("scan-t2i-mean"), build_loss(HingeConfig()), build_loss(LOSSES["hinge-all"])
    monkeypatch.setitem(counted_scores.WORK, "cpu", 4 * counted_scores.GRADIENT * 5 * matcher.pair_floats(5, 7))
    monkeypatch.setattr(counted_scores, "FEW", 0.5)
    step(matcher, hardest, counted=True)
    assert max(pairs for _, pairs in scored) == 5
    scored.clear()
    step(matcher, every, counted=True)
    assert [pairs for _, pairs in scored] == [M] * N  # never less than a row
    scored.clear()
    step(matcher, every, counted=True, rows=4)
    assert [pairs for _, pairs in scored] == [4 * M, 4 * M, M]


def test_rows_that_are_asked_for_are_never_scored_at_once(scored: list[tuple[str, int]]) -> None:
    matcher, every = matcher_of("vse++"), build_loss(LOSSES["hinge-all"])
    expected = step(matcher, every, counted=False)
    assert_same(step(matcher, every, counted=True, rows=2), expected)
    matcher = matcher_of("camp")
    expected = step(matcher, every, counted=False)
    scored.clear()
    assert_same(step(matcher, every, counted=True, rows=2), expected)
    assert max(pairs for _, pairs in scored) == 2 * M


def test_small_batches_and_matchers_of_vectors_are_scored_with_gradient_at_once(
    scored: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    step(matcher_of("camp"), build_loss(BCEConfig()), counted=True)
    assert ("logits", N * M) in scored
    monkeypatch.setattr(counted_scores, "PLAIN", 0)
    matcher = matcher_of("vse++")
    scores = batch_scores(matcher, *matcher(*batch()))
    assert type(scores.grad_fn).__name__ == "MmBackward0"


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", ["camp", "scan-t2i-mean", "mmca-gru"])
@pytest.mark.parametrize("few", [0.0, 1.0])
def test_ties_share_their_gradient(name: str, few: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all scores are equal every pair counts, each with its share."""
    monkeypatch.setattr(counted_scores, "FEW", few)
    matcher, equal = matcher_of(name), torch.full((N, M), 0.5, requires_grad=True)
    build_loss(HingeConfig(margin=0.5))(equal, OWNERS, torch.arange(N)[:, None] == OWNERS[None]).backward()
    assert equal.grad is not None
    assert len(equal.grad.unique()) > 2
    assert (equal.grad != 0).all()
    expected, found = (gradients_of(matcher, equal.grad, counted) for counted in (False, True))
    assert found.keys() == expected.keys()
    for part, gradient in expected.items():
        close(found[part], gradient, part)


def gradients_of(matcher: Matcher, slopes: Tensor, counted: bool) -> dict[str, Tensor]:
    """The parameters' gradients, where the scores have these."""
    matcher.zero_grad(set_to_none=True)
    kept = matcher(*batch())
    (batch_scores(matcher, *kept) if counted else matcher.score(*kept)).backward(slopes)
    return {name: parameter.grad for name, parameter in matcher.named_parameters() if parameter.grad is not None}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", ["camp", "scan-t2i-mean", "mmca-gru"])
def test_a_loss_of_nothing_has_gradients_of_nothing(name: str) -> None:
    """Zeros, and not none: an optimiser's weight decay and momentum go on."""
    matcher, function = matcher_of(name), build_loss(HingeConfig(margin=0.0))
    matcher.zero_grad(set_to_none=True)
    scores = batch_scores(matcher, *matcher(*batch()))
    function(scores, OWNERS, torch.ones(N, M, dtype=torch.bool)).backward()
    found = {name: parameter.grad for name, parameter in matcher.named_parameters()}
    assert all(gradient is None or not gradient.any() for gradient in found.values())
    matcher.zero_grad(set_to_none=True)
    function(matcher.score(*matcher(*batch())), OWNERS, torch.ones(N, M, dtype=torch.bool)).backward()
    assert {n for n, g in found.items() if g is None} == {n for n, p in matcher.named_parameters() if p.grad is None}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", ["camp", "scan-t2i-mean", "mmca-gru"])
def test_one_picture_alone(name: str) -> None:
    matcher, function = matcher_of(name), build_loss(BCEConfig(learned_scale=True))
    owners = torch.tensor([0, 0])
    expected = step(matcher, function, counted=False, n=1, owners=owners)
    assert_same(step(matcher, function, counted=True, n=1, owners=owners), expected)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("few", [0.0, 1.0])
def test_what_is_frozen_has_no_gradient(few: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted_scores, "FEW", few)
    matcher, function = matcher_of("camp"), build_loss(BCEConfig())
    matcher.text_encoder.requires_grad_(False)
    matcher.get_submodule("text_side").requires_grad_(False)
    matcher.get_submodule("hidden").requires_grad_(False)
    expected = step(matcher, function, counted=False)
    found = step(matcher, function, counted=True)
    assert_same(found, expected)
    assert found.sides["t.vectors"] is None
    assert found.parameters["hidden.weight"] is None
    assert found.parameters["output.weight"] is not None


@pytest.mark.usefixtures("always")
def test_gradients_add_up_over_backward_passes() -> None:
    matcher, function = matcher_of("camp"), build_loss(BCEConfig())
    once = step(matcher, function, counted=True).parameters
    kept = matcher(*batch())
    scores = batch_scores(matcher, *kept, logits=True)
    function(scores, OWNERS, torch.arange(N)[:, None] == OWNERS[None]).backward()
    for name, parameter in matcher.named_parameters():
        before = once[name]
        assert before is not None
        assert parameter.grad is before  # the second pass was added to the first
    again = step(matcher, function, counted=True).parameters
    for name, gradient in again.items():
        total, one = once[name], gradient
        assert total is not None
        assert one is not None
        torch.testing.assert_close(total, 2 * one, atol=1e-6, rtol=1e-5)


@pytest.mark.usefixtures("always")
def test_a_matcher_that_scores_aligned_pairs_one_by_one_goes_through_blocks(
    monkeypatch: pytest.MonkeyPatch, scored: list[tuple[str, int]]
) -> None:
    monkeypatch.setattr(counted_scores, "FEW", 1.0)
    matcher = matcher_of("scan-t2i-mean")
    monkeypatch.setattr(type(matcher), "score_pairs", Matcher.score_pairs)
    expected = step(matcher, build_loss(HingeConfig()), counted=False)
    scored.clear()
    assert_same(step(matcher, build_loss(HingeConfig()), counted=True), expected)
    assert [how for how, _ in scored] == ["score"]


@pytest.mark.usefixtures("always")
def test_logits_of_aligned_pairs_are_asked_for_only_where_the_matcher_has_them(
    monkeypatch: pytest.MonkeyPatch, scored: list[tuple[str, int]]
) -> None:
    """Else scores would be differentiated in their place."""
    monkeypatch.setattr(counted_scores, "FEW", 1.0)
    matcher = matcher_of("camp")
    expected = step(matcher, build_loss(BCEConfig()), counted=False)
    monkeypatch.setattr(type(matcher), "logit_pairs", Matcher.logit_pairs)
    scored.clear()
    assert_same(step(matcher, build_loss(BCEConfig()), counted=True), expected)
    assert {how for how, _ in scored} == {"logits"}


@pytest.mark.usefixtures("always")
def test_where_kernels_score_all_pairs_in_half_precision_those_that_count_are_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counted_scores, "FEW", 1.0)
    matcher, function = matcher_of("scan-t2i-mean"), build_loss(HingeConfig(negatives="all"))
    images, texts = matcher(*batch())
    monkeypatch.setattr(counted_scores, "has_kernels", lambda device: True)
    monkeypatch.setattr(type(matcher), "has_kernels", lambda self, regions, words: False)
    full = batch_scores(matcher, images, texts, half=torch.bfloat16)
    torch.testing.assert_close(full, matcher.score(images, texts))
    monkeypatch.setattr(type(matcher), "has_kernels", lambda self, regions, words: True)
    seen: list[tuple[bool, bool]] = []
    for name in ("score", "score_pairs"):
        call = getattr(matcher, name)

        def noting(*sides: Kept, call: Any = call) -> Tensor:
            seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
            scores: Tensor = call(*sides)
            return scores

        monkeypatch.setattr(matcher, name, noting)
    half = batch_scores(matcher, images, texts, half=torch.bfloat16)
    assert half.dtype == torch.float32
    assert not torch.equal(half, full)
    torch.testing.assert_close(half, full, atol=0.03, rtol=0.03)
    with torch.autocast("cpu", torch.bfloat16):  # whatever is asked for where the backward pass runs
        function(half, OWNERS, torch.arange(N)[:, None] == OWNERS[None]).backward()
    assert seen == [(False, True), (True, False)]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("few", [0.0, 1.0])
@pytest.mark.parametrize(
    ("name", "loss"), [("camp", "bce-hardest"), ("mmca-gru", "hinge-hardest"), ("camp", "infonce")]
)
def test_foils_are_sentences_like_others(name: str, loss: str, few: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences behind the captions, which are nobody's."""
    monkeypatch.setattr(counted_scores, "FEW", few)
    matcher, function, owners = matcher_of(name), build_loss(LOSSES[loss]), OWNERS[:-3]
    positive = torch.arange(N)[:, None] == owners[None]
    positive = torch.cat([positive, positive.new_zeros(N, 3)], 1)
    found = []
    for counted in (False, True):
        matcher.zero_grad(set_to_none=True)
        kept, logits = matcher(*batch()), function.takes_logits
        plain = matcher.logits if logits else matcher.score
        scores = batch_scores(matcher, *kept, logits=logits) if counted else plain(*kept)
        function(scores, owners, positive).backward()
        found.append({name: p.grad for name, p in matcher.named_parameters()})
    assert_same(Step(torch.zeros(()), {}, found[1]), Step(torch.zeros(()), {}, found[0]))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("few", [0.0, 1.0])
def test_what_a_term_wants_of_the_kept_sides_is_added(few: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted_scores, "FEW", few)
    matcher, function = matcher_of("camp"), build_loss(BCEConfig())
    found = []
    for counted in (False, True):
        matcher.zero_grad(set_to_none=True)
        kept = matcher(*batch())
        scores = batch_scores(matcher, *kept, logits=True) if counted else matcher.logits(*kept)
        loss = function(scores, OWNERS, torch.arange(N)[:, None] == OWNERS[None]) + 3 * mmd(*kept)
        loss.backward()
        found.append(Step(loss.detach(), {}, {name: p.grad for name, p in matcher.named_parameters()}))
    assert_same(found[1], found[0])


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("few", [0.0, 1.0])
def test_a_scaled_loss_has_scaled_gradients(few: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """As half precision has it; and one that overflows is seen to, so that the step is left out."""
    monkeypatch.setattr(counted_scores, "FEW", few)
    matcher = matcher_of("camp")
    with torch.no_grad():
        scores = matcher.score(*matcher(*batch()))
    slopes = torch.zeros_like(scores).index_put_((OWNERS, torch.arange(M)), torch.tensor(0.1))
    once, scaled, over = (gradients_of(matcher, slopes * scale, counted=True) for scale in (1.0, 2.0**16, torch.inf))
    for name, gradient in once.items():
        torch.testing.assert_close(scaled[name], 2.0**16 * gradient)
    assert any(not gradient.isfinite().all() for gradient in over.values())


@pytest.mark.usefixtures("always")
def test_where_a_hardest_negative_costs_nothing_its_pair_does_not_count(
    monkeypatch: pytest.MonkeyPatch, scored: list[tuple[str, int]]
) -> None:
    """Of captions whose negatives all are behind the margin, not even the own pair is scored again."""
    monkeypatch.setattr(counted_scores, "FEW", 1.0)
    matcher, slopes = matcher_of("camp"), torch.zeros(N, M)
    images, texts = matcher(*batch())
    scores = torch.where(torch.arange(N)[:, None] == OWNERS[None], 0.9, 0.1)
    scores[2, 5] = 0.8  # the one pair within the margin: for caption 5, and for picture 4 nothing of its own
    leaf = scores.requires_grad_()
    build_loss(HingeConfig(margin=0.2))(leaf, OWNERS, torch.arange(N)[:, None] == OWNERS[None]).backward()
    assert leaf.grad is not None
    slopes = leaf.grad
    batch_scores(matcher, images, texts).backward(slopes)
    wanted = {(2, 5), (int(OWNERS[5]), 5), *((2, c) for c in range(M) if OWNERS[c] == 2)}
    assert {tuple(pair) for pair in slopes.nonzero().tolist()} == wanted
    assert [call for call in scored if call[0] == "score_pairs"] == [("score_pairs", len(wanted))]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("few", [0.0, 1.0])
def test_parameters_whose_gradient_is_one_tensor_are_summed_apart(few: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autograd hands the two terms of a sum the very same tensor."""
    monkeypatch.setattr(counted_scores, "FEW", few)
    monkeypatch.setitem(counted_scores.WORK, "cpu", 1)
    matcher = matcher_of("scan-t2i-mean")
    p, q = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    matcher.register_parameter("p", p)
    matcher.register_parameter("q", q)
    for name in ("score", "score_pairs"):
        call = getattr(matcher, name)
        monkeypatch.setattr(matcher, name, lambda *sides, call=call: call(*sides) + (p + q))
    batch_scores(matcher, *matcher(*batch())).sum().backward()
    assert p.grad is not None
    assert q.grad is not None
    assert float(p.grad) == float(q.grad) == N * M


@pytest.mark.usefixtures("always")
def test_rows_bound_the_pairs_that_count_too(monkeypatch: pytest.MonkeyPatch, scored: list[tuple[str, int]]) -> None:
    monkeypatch.setattr(counted_scores, "FEW", 1.0)
    step(matcher_of("camp"), build_loss(LOSSES["hinge-all"]), counted=True, rows=2)
    counts = [pairs for how, pairs in scored if how == "score_pairs"]
    assert len(counts) > 1
    assert max(counts) == 2 * M
