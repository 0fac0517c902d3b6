"""GPO against a slow loop written from the formula: values and gradients, on odd shapes."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from diptych.encoders.gpo import GPO, GPOConfig, position_code, sort_set, sorted_values
from diptych.encoders.pooling import max_contributions, max_pool, mean_contributions, mean_pool

DIM = 6
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
CONFIGS = [
    GPOConfig(sequence=sequence, per_dimension=per_dimension, features=features)  # type: ignore[arg-type]
    for sequence, per_dimension, features in product(("bigru", "transformer"), (False, True), (False, True))
]


def gru_pass(x: list[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> list[Tensor]:
    """The states of a GRU from its equations, one step after the other."""
    h = torch.zeros(w_hh.shape[1])
    states = []
    for step in x:
        r_x, z_x, n_x = (w_ih @ step + b_ih).chunk(3)
        r_h, z_h, n_h = (w_hh @ h + b_hh).chunk(3)
        r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
        h = (1 - z) * torch.tanh(n_x + r * n_h) + z * h
        states.append(h)
    return states


def bigru_states(gpo: GPO, x: list[Tensor]) -> list[Tensor]:
    p = dict(gpo.gru.named_parameters())  # type: ignore[union-attr]
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    forward = gru_pass(x, *(p[name] for name in names))
    backward = gru_pass(x[::-1], *(p[f"{name}_reverse"] for name in names))[::-1]
    return [(f + b) / 2 for f, b in zip(forward, backward, strict=True)]


def transformer_states(gpo: GPO, x: list[Tensor]) -> list[Tensor]:
    layer, heads = gpo.transformer, 4
    h = [gpo.project(step) for step in x]
    width = len(h[0]) // heads
    q, k, v = zip(
        *((layer.self_attn.in_proj_weight @ s + layer.self_attn.in_proj_bias).chunk(3) for s in h), strict=True
    )
    out = []
    for i in range(len(h)):
        parts = []
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            weights = torch.stack([q[i][part] @ k[j][part] / math.sqrt(width) for j in range(len(h))]).softmax(0)
            parts.append(sum(weights[j] * v[j][part] for j in range(len(h))))
        y = layer.norm1(h[i] + layer.self_attn.out_proj(torch.cat(parts)))
        out.append(layer.norm2(y + layer.linear2(layer.linear1(y).relu())))
    return out


def slow_pool(gpo: GPO, vectors: Tensor) -> Tensor:
    """v = sum_k theta_k max_k of one set without padding: (n, d) -> (d,)."""
    n, dim = vectors.shape
    ranked = [
        torch.stack([sorted(vectors[:, d], key=lambda value: -float(value.detach()))[k] for d in range(dim)])
        for k in range(n)
    ]
    inputs = []
    for k in range(n):
        width = gpo.config.position_dim
        code = []
        for i in range(width // 2):
            angle = k / 10000 ** (2 * i / width)
            code += [math.sin(angle), math.cos(angle)]
        x = torch.tensor(code)
        inputs.append(torch.cat([x, ranked[k]]) if gpo.config.features else x)
    states = (bigru_states if gpo.config.sequence == "bigru" else transformer_states)(gpo, inputs)
    theta = torch.stack([gpo.linear(s) / gpo.config.temperature for s in states]).softmax(0)
    return sum((theta[k] * ranked[k] for k in range(n)), torch.zeros(dim))


def odd_sets() -> tuple[Tensor, Tensor]:
    """Sizes 5, 1, 3 (with holes), 4, 3 with vectors that come twice; pads hold garbage."""
    vectors = torch.randn(5, 6, DIM)
    vectors[4, 1] = vectors[4, 0]
    mask = torch.zeros(5, 6, dtype=torch.bool)
    for row, real in enumerate(([0, 1, 2, 3, 4], [0], [1, 3, 5], [0, 1, 2, 3], [0, 1, 2])):
        mask[row, real] = True
    return vectors.masked_fill(~mask.unsqueeze(-1), 1e6), mask


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_values_and_gradients_are_those_of_a_loop_over_the_formula(config: GPOConfig) -> None:
    gpo = GPO(config, DIM)
    vectors, mask = odd_sets()
    fast_input, slow_input = vectors.clone().requires_grad_(), vectors.clone().requires_grad_()
    fast = gpo(fast_input, mask)
    slow = torch.stack([slow_pool(gpo, v[m]) for v, m in zip(slow_input, mask, strict=True)])
    torch.testing.assert_close(fast, slow, **CLOSE)

    weights = torch.randn_like(fast)
    trained = [p for p in gpo.parameters() if p.requires_grad]
    fast_gradients = torch.autograd.grad((fast * weights).sum(), [fast_input, *trained])
    slow_gradients = torch.autograd.grad((slow * weights).sum(), [slow_input, *trained])
    # Where two vectors are equal either may take the gradient of a rank, so only their sum is fixed.
    for gradients in (fast_gradients, slow_gradients):
        gradients[0][4, 0] += gradients[0][4, 1]
        gradients[0][4, 1] = 0
    for one, other in zip(fast_gradients, slow_gradients, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


def test_the_position_code_interleaves_sine_and_cosine_from_zero() -> None:
    code = position_code(3, 4)
    torch.testing.assert_close(code[0], torch.tensor([0.0, 1.0, 0.0, 1.0]))
    expected = [math.sin(2), math.cos(2), math.sin(2 / 100), math.cos(2 / 100)]
    torch.testing.assert_close(code[2], torch.tensor(expected))


def test_pads_sort_last_as_zeros() -> None:
    values, order = sort_set(torch.tensor([[[-3.0], [9.0], [-1.0]]]), torch.tensor([[True, False, True]]))
    assert values.flatten().tolist() == [-1, -3, 0]
    assert order.flatten().tolist() == [2, 0, 1]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 3), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_padding_order_and_company_never_matter(sizes: list[int], extra: int, seed: int) -> None:
    torch.manual_seed(seed)
    gpo = GPO(GPOConfig(), DIM)
    longest = max(sizes) + extra
    sets = [torch.randn(size, DIM) for size in sizes]
    vectors, mask = torch.full((len(sizes), longest, DIM), 50.0), torch.zeros(len(sizes), longest, dtype=torch.bool)
    for i, one in enumerate(sets):
        places = torch.randperm(longest)[: len(one)]
        vectors[i, places] = one
        mask[i, places] = True
    together = gpo(vectors, mask)
    alone = torch.cat([gpo(one.unsqueeze(0), torch.ones(1, len(one), dtype=torch.bool)) for one in sets])
    torch.testing.assert_close(together, alone, **CLOSE)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_coefficients_sum_to_one_and_are_zero_behind_the_end(config: GPOConfig) -> None:
    gpo = GPO(config, DIM)
    sizes = torch.tensor([1, 4, 2])
    theta = gpo.coefficients(sizes, torch.randn(3, 4, DIM) if config.features else None)
    assert theta.shape == (3, 4, DIM if config.per_dimension else 1)
    torch.testing.assert_close(theta.sum(1), torch.ones(3, theta.shape[-1]))
    assert theta[0, 1:].abs().sum() == 0
    assert theta[2, 2:].abs().sum() == 0


@pytest.mark.parametrize("config", [GPOConfig(), GPOConfig(sequence="transformer"), GPOConfig(per_dimension=True)])
def test_the_coefficients_of_every_size_at_once_are_those_of_each(config: GPOConfig) -> None:
    torch.manual_seed(1)
    gpo = GPO(config, 5)
    found = gpo.every_size(7)
    assert found.shape == (7, 7, 5 if config.per_dimension else 1)
    for size in range(1, 8):
        alone = gpo.coefficients(torch.tensor([size]))[0]
        torch.testing.assert_close(found[size - 1, :size], alone)
        assert found[size - 1, size:].eq(0).all()


def test_each_size_is_generated_once_however_many_sets_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gpo = GPO(GPOConfig(), DIM)
    asked = []
    plain = gpo.coefficients

    def noted(lengths: Tensor, values: Tensor | None = None) -> Tensor:
        asked.append(lengths.tolist())
        return plain(lengths, values)

    monkeypatch.setattr(gpo, "coefficients", noted)
    mask = torch.arange(5) < torch.tensor([3, 5, 3, 3, 5]).unsqueeze(1)
    gpo(torch.randn(5, 5, DIM), mask)
    assert asked == [[3, 5]]


def test_a_zero_generator_is_the_mean_and_a_sharp_one_the_max() -> None:
    vectors, mask = odd_sets()
    gpo = GPO(GPOConfig(), DIM)
    torch.nn.init.zeros_(gpo.linear.weight)
    torch.testing.assert_close(
        gpo(vectors, mask), mean_pool(vectors.masked_fill(~mask.unsqueeze(-1), 0), mask), **CLOSE
    )
    sharp = torch.zeros(5, 6, 1)
    sharp[:, 0] = 1
    gpo.coefficients = lambda lengths, values=None: sharp[: len(lengths)]  # type: ignore[method-assign]
    torch.testing.assert_close(gpo(vectors, mask), max_pool(vectors, mask))


def test_an_empty_set_pools_to_zero_with_finite_gradients() -> None:
    gpo = GPO(GPOConfig(), DIM)
    vectors = torch.randn(2, 3, DIM, requires_grad=True)
    mask = torch.tensor([[False, False, False], [True, True, False]])
    pooled = gpo(vectors, mask)
    pooled.sum().backward()
    assert pooled[0].abs().sum() == 0
    assert vectors.grad is not None
    assert vectors.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in gpo.parameters() if p.grad is not None)
    assert gpo.contributions(vectors, mask)[0].abs().sum() == 0


def test_autocast_does_not_blur_the_coefficients() -> None:
    gpo = GPO(GPOConfig(), DIM)
    sizes = torch.tensor([36, 7])
    with torch.autocast("cpu", torch.bfloat16):
        blurred = gpo.coefficients(sizes)
    torch.testing.assert_close(blurred, gpo.coefficients(sizes), atol=0, rtol=0)


def test_it_takes_the_authors_tensors() -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in GPO(GPOConfig(), 1024).state_dict().items()}
    gru = {
        f"gru.{kind}_l0{way}": (96, 32) if kind.startswith("weight") else (96,)
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        for way in ("", "_reverse")
    }
    assert shapes == {**gru, "linear.weight": (1, 32)}


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_contributions_say_how_much_each_input_supplies(config: GPOConfig) -> None:
    gpo = GPO(config, DIM)
    vectors, mask = odd_sets()
    shares = gpo.contributions(vectors, mask)
    torch.testing.assert_close(shares.sum(1), torch.ones(5))
    assert shares[~mask].abs().sum() == 0
    values, _ = sort_set(vectors, mask)
    sizes = mask.sum(1)
    theta = gpo.coefficients(sizes, values[:, : int(sizes.max())] if config.features else None).expand(-1, -1, DIM)
    for i, k in mask[:4].nonzero().tolist():  # the fifth set has equal vectors, whose ranks are arbitrary
        won = [theta[i, int((vectors[i, mask[i], d] > vectors[i, k, d]).sum()), d] for d in range(DIM)]
        torch.testing.assert_close(shares[i, k], torch.stack(won).mean(), **CLOSE)


def test_contributions_of_mean_and_max() -> None:
    mask = torch.tensor([[True, True, False], [False, True, False]])
    vectors = torch.tensor([[[1.0, 5, 2, 0], [3.0, 4, 3, 9], [99.0] * 4], [[7.0] * 4, [1.0] * 4, [7.0] * 4]])
    assert mean_contributions(mask).tolist() == [[0.5, 0.5, 0], [0, 1, 0]]
    assert max_contributions(vectors, mask).tolist() == [[0.25, 0.75, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("field", "value"), [("position_dim", 31), ("position_dim", 0), ("hidden", 0), ("temperature", 0.0)]
)
def test_impossible_settings_are_named(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        GPOConfig(**{field: value})  # type: ignore[arg-type]


def test_four_heads_must_divide_the_transformers_width() -> None:
    with pytest.raises(ValueError, match="hidden"):
        GPOConfig(sequence="transformer", hidden=30)


@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 5), st.integers(0, 10**6), st.booleans())
def test_values_alone_are_those_of_the_sorted_set(n: int, k: int, d: int, seed: int, grad: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randint(-3, 4, (n, k, d), generator=generator).float().requires_grad_(grad)  # with ties
    mask = torch.rand(n, k, generator=generator) < 0.7
    assert torch.equal(sorted_values(vectors, mask), sort_set(vectors, mask)[0])
