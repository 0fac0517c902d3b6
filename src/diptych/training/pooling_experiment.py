"""The synthetic pooling experiment of VSE∞'s supplement, section 2.3 and Table 6.

A coefficient generator learns a known pooling pattern from pairs of random sets and their pooled vectors, on sets of
20 to 100 vectors. Then its coefficients are compared with the true ones, on those sizes (seen), on 10 to 19 (smaller)
and on 101 to 120 (larger).

The paper leaves the training open. Here, the same for every design: features from N(0, 1), 8 sets of 64 dimensions a
step with sizes drawn evenly from 20 to 100, the mean square error of the pooled vectors, and 2,000 steps of Adam whose
learning rate falls from 0.005 to 0 by a cosine.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.encoders.gpo import GPO, GPOConfig, position_code, sort_set

SEEN = range(20, 101)
SMALLER = range(10, 20)
LARGER = range(101, 121)
TEMPERATURE = 0.1


@dataclass(frozen=True)
class Budget:
    """What every design trains with: steps, sets a step, dimensions of a set, the first learning rate."""

    steps: int = 2000
    sets: int = 8
    dim: int = 64
    learning_rate: float = 0.005


@dataclass(frozen=True)
class Errors:
    """Root mean square error of the coefficients: the mean over seen, over smaller and over larger sizes."""

    seen: float
    smaller: float
    larger: float


class CoefficientGenerator(Protocol):
    """What learns to pool: the sizes of sets (n,) to their coefficients (n, longest, 1), 0 behind a set's end."""

    def coefficients(self, lengths: Tensor) -> Tensor:
        """(n,) -> (n, longest, 1)."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """What is trained."""


def cos_sin_bigru() -> GPO:
    """The paper's own: `diptych.encoders.gpo.GPO` as it stands in VSE∞."""
    return GPO(GPOConfig(temperature=TEMPERATURE), dim=1)


class IndexBiGRU(GPO):
    """A learned embedding of each rank in place of its sine and cosine code."""

    def __init__(self) -> None:
        super().__init__(GPOConfig(temperature=TEMPERATURE), dim=1)
        self.embed = nn.Embedding(LARGER.stop - 1, self.config.position_dim)

    def codes(self, count: int) -> Tensor:
        """The first rows of the embedding: (count, 32)."""
        return self.embed.weight[:count]


class CosSinMLP(nn.Module):
    """The code of a rank to its logit by Linear-ReLU-Linear, so that a logit knows nothing of the set's size."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1, bias=False))

    def coefficients(self, lengths: Tensor) -> Tensor:
        """(n,) -> (n, longest, 1)."""
        logits = self.mlp(position_code(int(lengths.max()), 32)).squeeze(-1)
        return _softmax_over_ranks(logits.expand(len(lengths), -1), lengths)


class Interpolation(nn.Module):
    """A learned vector of 20 logits, linearly interpolated to the set's size."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(20))

    def coefficients(self, lengths: Tensor) -> Tensor:
        """(n,) -> (n, longest, 1)."""
        longest = int(lengths.max())
        rows = [
            F.pad(F.interpolate(self.logits[None, None], size, mode="linear")[0, 0], (0, longest - size))
            for size in lengths.tolist()
        ]
        return _softmax_over_ranks(torch.stack(rows), lengths)


def _softmax_over_ranks(logits: Tensor, lengths: Tensor) -> Tensor:
    pads = torch.arange(logits.shape[1]) >= lengths.unsqueeze(1)
    return (logits / TEMPERATURE).masked_fill(pads, -torch.inf).softmax(1).unsqueeze(-1)


DESIGNS: dict[str, Callable[[], CoefficientGenerator]] = {
    "Interp.": Interpolation,
    "Cos/Sin+MLP": CosSinMLP,
    "Index+BiGRU": IndexBiGRU,
    "Cos/Sin+BiGRU": cos_sin_bigru,
}
PATTERNS = ("A", "M-1", "M-10", "T-50%", "L")
PAPER: dict[str, dict[str, Errors]] = {
    "Interp.": {
        "A": Errors(0, 0, 0),
        "M-1": Errors(0.065, 0.017, 0.070),
        "M-10": Errors(0.030, 0.141, 0.014),
        "T-50%": Errors(0.011, 0.039, 0.005),
        "L": Errors(0.004, 0.016, 0.002),
    },
    "Cos/Sin+MLP": {
        "A": Errors(0.012, 0.054, 0.006),
        "M-1": Errors(0.003, 0.003, 0.003),
        "M-10": Errors(0.047, 0.093, 0.030),
        "T-50%": Errors(0.032, 0.096, 0.026),
        "L": Errors(0.022, 0.065, 0.028),
    },
    "Index+BiGRU": {
        "A": Errors(0.002, 0.006, 0.003),
        "M-1": Errors(0.002, 0.004, 0.001),
        "M-10": Errors(0.026, 0.052, 0.018),
        "T-50%": Errors(0.011, 0.049, 0.007),
        "L": Errors(0.008, 0.015, 0.005),
    },
    "Cos/Sin+BiGRU": {
        "A": Errors(0, 0.002, 0),
        "M-1": Errors(0.005, 0.010, 0.004),
        "M-10": Errors(0.010, 0.031, 0.007),
        "T-50%": Errors(0.006, 0.046, 0.004),
        "L": Errors(0, 0.005, 0.001),
    },
}


def true_coefficients(pattern: str, size: int) -> Tensor:
    """A pattern's coefficients for a set of `size` vectors: (size,), summing to 1.

    A: all alike. M-K: the K largest alike. T-50%: the larger half alike (rounded down). L: falling linearly to 0 at
    the last rank.
    """
    ranks = torch.arange(size)
    weights = {
        "A": ranks >= 0,
        "M-1": ranks < 1,
        "M-10": ranks < 10,
        "T-50%": ranks < max(1, size // 2),
        "L": size - 1 - ranks,
    }[pattern].float()
    return weights / weights.sum()


def padded_coefficients(pattern: str, sizes: list[int]) -> Tensor:
    """The true coefficients of several sizes: (n, longest), 0 behind a set's end."""
    return nn.utils.rnn.pad_sequence([true_coefficients(pattern, size) for size in sizes], batch_first=True)


def train_generators(design: str, budget: Budget, seed: int) -> Iterator[dict[str, CoefficientGenerator]]:
    """Teach one design every pattern, a generator each; yields them by pattern, the same ones, after every step."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        generators = {pattern: DESIGNS[design]() for pattern in PATTERNS}
    draws = torch.Generator().manual_seed(seed)
    # Adam works on each number by itself and no number is shared: this is the same as training one by one.
    optimizer = torch.optim.Adam([p for g in generators.values() for p in g.parameters()], lr=budget.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, budget.steps)
    for _ in range(budget.steps):
        sizes = torch.randint(SEEN.start, SEEN.stop, (budget.sets,), generator=draws)
        longest = int(sizes.max())
        vectors = torch.randn(budget.sets, longest, budget.dim, generator=draws)
        values, _ = sort_set(vectors, torch.arange(longest) < sizes.unsqueeze(1))
        true = torch.stack([padded_coefficients(pattern, sizes.tolist()) for pattern in PATTERNS])
        ours = coefficients_of_all(list(generators.values()), sizes)
        pooled, target = (torch.einsum("pnk,nkd->pnd", theta, values) for theta in (ours, true))
        optimizer.zero_grad()
        (pooled - target).square().mean(dim=(1, 2)).sum().backward()
        optimizer.step()
        schedule.step()
        yield generators


def coefficients_of_all(generators: Sequence[CoefficientGenerator], lengths: Tensor) -> Tensor:
    """The coefficients of several generators of one design: (generators, n, longest)."""
    bigrus = [generator for generator in generators if isinstance(generator, GPO)]
    if len(bigrus) == len(generators):
        return bigrus_side_by_side(bigrus, lengths)
    return torch.stack([generator.coefficients(lengths).squeeze(-1) for generator in generators])


def bigrus_side_by_side(generators: Sequence[GPO], lengths: Tensor) -> Tensor:
    """`GPO.coefficients` of several BiGRU generators at once: (generators, n, longest).

    On a CPU a small GRU costs its number of steps, however little is done in each. Here all generators, sizes and
    both directions take a step together, which makes the experiment several times as fast.
    """
    count, longest = len(generators), int(lengths.max())
    ranks = torch.arange(longest)
    ways = torch.stack([ranks.expand(len(lengths), -1), (lengths.unsqueeze(1) - 1 - ranks).clamp(min=0)])
    # Both directions of every generator: (2, generators, …).
    w_x, w_h, b_x, b_h = (
        torch.stack([torch.stack([g.gru.all_weights[way][part] for g in generators if g.gru]) for way in (0, 1)])
        for part in range(4)
    )
    codes = torch.stack([generator.codes(longest) for generator in generators])
    from_codes = torch.einsum("gki,wghi->wgkh", codes, w_x) + b_x.unsqueeze(2)  # (2, generators, longest, 3 hidden)
    # Step t of a direction meets rank t, or n - 1 - t on the way back; what follows a set's end touches nothing before.
    met = torch.stack([from_codes[way][:, ways[way]] for way in (0, 1)]).flatten(0, 1)  # (2 generators, n, longest, 3h)
    w_h, b_h = w_h.flatten(0, 1).transpose(1, 2), b_h.flatten(0, 1).unsqueeze(1)
    hidden = w_h.shape[1]
    state = torch.zeros(2 * count, len(lengths), hidden)
    states = []
    for x in met.unbind(2):
        h = torch.baddbmm(b_h, state, w_h)
        reset, update = (x[..., : 2 * hidden] + h[..., : 2 * hidden]).sigmoid().chunk(2, dim=-1)
        new = torch.addcmul(x[..., 2 * hidden :], reset, h[..., 2 * hidden :]).tanh()
        state = torch.lerp(new, state, update)
        states.append(state)
    forward, backward = torch.stack(states, 2).unflatten(0, (2, count))
    backward = backward.gather(2, ways[1][None, :, :, None].expand_as(backward))
    linear = torch.stack([generator.linear.weight[0] for generator in generators])
    logits = torch.einsum("gnkh,gh->gnk", (forward + backward) / 2, linear)
    pads = ranks >= lengths.unsqueeze(1)
    return (logits / TEMPERATURE).masked_fill(pads, -torch.inf).softmax(-1)


def coefficient_error(generator: CoefficientGenerator, pattern: str, sizes: range) -> float:
    """RMSE over the coefficients of each size, then the mean over sizes."""
    counts = torch.tensor(list(sizes))
    with torch.no_grad():
        wrong = generator.coefficients(counts).squeeze(-1) - padded_coefficients(pattern, counts.tolist())
    return float((wrong.square().sum(1) / counts).sqrt().mean())


def errors(generator: CoefficientGenerator, pattern: str) -> Errors:
    """A trained generator's errors on seen, smaller and larger sizes."""
    return Errors(*(coefficient_error(generator, pattern, sizes) for sizes in (SEEN, SMALLER, LARGER)))
