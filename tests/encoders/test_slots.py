"""Set prediction against a loop written from its formulas."""

from typing import Any

import pytest
import torch
from torch import Tensor

from diptych.encoders.slots import PredictedSet, SetPrediction, position_code
from tests.encoders.slow_sets import position, slow_set

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
LENGTHS = [1, 4, 2, 7]
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "position": {"position": True},
    "random": {"initial_slots": "random"},
    "gru": {"update": "gru"},
    "no-global": {"global_feature": False},
    "one-slot": {"slots": 1, "position": True},
    "legacy": {"legacy_mask": True},
    "legacy-position": {"legacy_mask": True, "position": True},
    "legacy-gru-random": {"legacy_mask": True, "update": "gru", "initial_slots": "random"},
}


def build(**changes: Any) -> SetPrediction:
    settings: dict[str, Any] = {"slots": 3, "iterations": 3, "heads": 2, "head_dim": 4, "feed_forward": 2, **changes}
    module = SetPrediction(6, 5, **settings)
    with torch.no_grad():
        for parameter in module.parameters():  # norms and biases start at 1 and 0, which would hide a mistake
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module.eval()


def padded(extra: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Ragged locals (4, 7 + extra, 5), their mask, and global features (4, 6)."""
    torch.manual_seed(5)
    vectors = torch.randn(len(LENGTHS), max(LENGTHS), 5)
    whole = torch.randn(len(LENGTHS), 6)
    vectors = torch.cat([vectors, torch.full((len(LENGTHS), extra, 5), 9.0)], 1)
    mask = torch.arange(vectors.shape[1]) < torch.tensor(LENGTHS).unsqueeze(1)
    return vectors, mask, whole


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_sets_slots_weights_and_gradients_are_those_of_the_loop(name: str) -> None:
    module = build(**VARIANTS[name])
    vectors, mask, whole = padded()
    ours = module(vectors, mask, whole)
    theirs = [slow_set(module, list(v), w, pads=int((~m).sum())) for v, m, w in zip(vectors, mask, whole, strict=True)]
    elements = torch.stack([torch.stack(e) for e, _, _ in theirs])
    torch.testing.assert_close(ours.vectors, elements, **CLOSE)
    torch.testing.assert_close(ours.slots, torch.stack([torch.stack(s) for _, s, _ in theirs]), **CLOSE)
    for n, (_, _, weights) in enumerate(theirs):
        for t, of_heads in enumerate(weights):
            for h, of_slots in enumerate(of_heads):
                for k, row in enumerate(of_slots):
                    torch.testing.assert_close(ours.weights[t][n, h, k, : len(row)], torch.stack(row), **CLOSE)

    chosen = torch.randn_like(elements)
    parameters = [p for _, p in sorted(module.named_parameters())]
    got = torch.autograd.grad((ours.vectors * chosen).sum(), parameters, allow_unused=True)
    expected = torch.autograd.grad((elements * chosen).sum(), parameters, allow_unused=True)
    for g, e in zip(got, expected, strict=True):
        assert (g is None) == (e is None)
        if g is not None and e is not None:
            torch.testing.assert_close(g, e, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", sorted(n for n in VARIANTS if "legacy" not in n))
def test_padding_has_no_weight_and_moves_nothing(name: str) -> None:
    module = build(**VARIANTS[name])
    few, many = module(*padded()), module(*padded(extra=5))
    torch.testing.assert_close(many.vectors, few.vectors, **CLOSE)
    _, mask, _ = padded(extra=5)
    for weights in many.weights:
        assert not weights.masked_select(~mask[:, None, None, :]).any()
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), **CLOSE)


def test_the_published_mask_gives_every_pad_an_equal_share_of_all_slots() -> None:
    module = build(legacy_mask=True)
    few, many = module(*padded()), module(*padded(extra=5))
    assert (many.vectors - few.vectors).abs().max() > 0.01
    # Before the division by its sum, a pad's share is 1/K in every slot, and so the pads' weights of a slot are equal
    # and, over slots, stand as the inverse of those sums: the first item has one real input and eleven pads.
    for weights in many.weights:
        real, pads = weights[0, ..., 0], weights[0, ..., 1:]
        torch.testing.assert_close(pads, pads[..., :1].expand_as(pads))
        sums = 1 / module.count / pads[..., 0]
        torch.testing.assert_close((real * sums).sum(-1), torch.ones(module.attention.heads), **CLOSE)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", sorted(n for n in VARIANTS if "gru" not in n))
def test_training_gives_what_the_plain_iterations_give(name: str, dropout: float, autocast: bool) -> None:
    """Sets, weights and the gradients of everything, with the same draws of dropout."""
    module = build(**{**VARIANTS[name], "dropout": dropout})
    vectors, mask, whole = (x.clone() for x in padded(extra=1))
    chosen, further = torch.randn(4, module.count, 6), torch.randn(4, module.count, 6)
    initial = torch.randn(4, module.count, 6)
    leaves = [vectors.requires_grad_(), whole.requires_grad_(), *module.parameters()]

    def passed(fast: bool) -> tuple[PredictedSet, list[Tensor | None]]:
        module.training = fast  # the module alone: its dropouts draw in both
        module.attention.train()
        module.feed_forward.train()
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast), pytest.MonkeyPatch.context() as patch:
            if module.random:  # drawn anew in training
                scattered = module.slots_mean + module.slots_log_std.exp() * initial
                patch.setattr(module, "_initial", lambda n: scattered)
            found = module(vectors, mask, whole)
        total = (found.vectors.float() * chosen).sum() + (found.slots.float() * further).sum()
        return found, list(torch.autograd.grad(total, leaves, allow_unused=True))

    (plain, expected), (fast, got) = passed(False), passed(True)
    close = {"atol": 0.06, "rtol": 0.06} if autocast else CLOSE
    torch.testing.assert_close(fast.vectors, plain.vectors, **close)
    torch.testing.assert_close(fast.slots, plain.slots, **close)
    assert len(fast.weights) == len(plain.weights)
    for ours, theirs in zip(fast.weights, plain.weights, strict=True):
        torch.testing.assert_close(ours, theirs, **close)
        assert not ours.requires_grad
    assert sum(g is not None for g in expected) > 15
    for ours_, theirs_ in zip(got, expected, strict=True):
        assert (ours_ is None) == (theirs_ is None)
        if ours_ is not None and theirs_ is not None:
            largest = max(1.0, float(theirs_.abs().max()))
            off = float((ours_ - theirs_).abs().max())
            assert off < (0.1 if autocast else 1e-5) * largest


def test_training_repeats_itself_in_double_precision() -> None:
    """The written-out gradient against differences of the function itself."""
    module = build(position=True, dropout=0.0).double().train()
    vectors, mask, whole = padded()
    chosen = torch.randn(4, 3, 6, dtype=torch.float64)
    inputs = (vectors.double().requires_grad_(), whole.double().requires_grad_())

    def value(v: Tensor, w: Tensor) -> Tensor:
        total: Tensor = (module(v, mask, w).vectors * chosen).sum()
        return total

    assert torch.autograd.gradcheck(value, inputs)


def test_an_item_of_padding_alone_trains_to_finite_numbers() -> None:
    module = build(dropout=0.0).train()
    vectors, mask, whole = padded()
    found = module(vectors, mask & (torch.arange(4) != 1).unsqueeze(1), whole)
    assert found.vectors.isfinite().all()
    found.vectors.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in module.parameters())


def test_position_code_is_the_formula_at_odd_widths_too() -> None:
    code = position_code(torch.tensor([3, 1, 5]), 5, 7)
    for row, n in zip(code, [3, 1, 5], strict=True):
        for p in range(n):
            torch.testing.assert_close(row[p], position(p + 1, n, 7), **CLOSE)


def test_the_position_moves_keys_but_not_values() -> None:
    module = build(position=True)
    vectors, mask, _ = padded()
    code = position_code(mask.sum(1), *vectors.shape[1:])
    keys, values = module.attention.inputs(vectors, code)
    plain_keys, plain_values = module.attention.inputs(vectors, None)
    torch.testing.assert_close(values, plain_values, atol=0, rtol=0)
    assert (keys - plain_keys).abs().max() > 0.1


def test_order_matters_only_with_a_position() -> None:
    vectors, mask, whole = padded()
    turned = vectors[3:].flip(1)
    for with_position in (False, True):
        module = build(position=with_position)
        there = module(vectors[3:], mask[3:], whole[3:]).vectors
        back = module(turned, mask[3:], whole[3:]).vectors
        assert torch.allclose(there, back, atol=1e-5) is not with_position


def test_random_slots_differ_in_training_and_stand_still_at_evaluation() -> None:
    module = build(initial_slots="random", dropout=0.0)
    vectors, mask, whole = padded()
    torch.testing.assert_close(module(vectors, mask, whole).vectors, module(vectors, mask, whole).vectors)
    assert "slots_noise" in module.state_dict()
    module.train()
    assert not torch.allclose(module(vectors, mask, whole).vectors, module(vectors, mask, whole).vectors)


def test_the_papers_size_has_the_published_tensors() -> None:
    """Names and shapes of the authors' checkpoints, text side, under our names."""
    with torch.device("meta"):
        module = SetPrediction(1024, 300, position=True)
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    assert shapes == {
        "slots": (4, 1024),
        "attention.norm.weight": (1024,),
        "attention.norm.bias": (1024,),
        "attention.norm_inputs.weight": (300,),
        "attention.norm_inputs.bias": (300,),
        "attention.to_q.weight": (2048, 1024),
        "attention.to_k.weight": (2048, 300),
        "attention.to_v.weight": (2048, 300),
        "attention.to_out.weight": (1024, 2048),
        "attention.to_out.bias": (1024,),
        "feed_forward.norm.weight": (1024,),
        "feed_forward.norm.bias": (1024,),
        "feed_forward.fc1.weight": (4096, 1024),
        "feed_forward.fc1.bias": (4096,),
        "feed_forward.fc2.weight": (1024, 4096),
        "feed_forward.fc2.bias": (1024,),
        "slots_norm.weight": (1024,),
        "slots_norm.bias": (1024,),
        "global_norm.weight": (1024,),
        "global_norm.bias": (1024,),
    }
