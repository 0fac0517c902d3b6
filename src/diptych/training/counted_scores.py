"""Scores of all pairs of a batch, of which only those that count are differentiated.

A loss that takes the hardest negatives has a gradient at three pairs a caption at most: its own, the hardest picture's
and the hardest caption's. Where every pair has an attention of its own, all other pairs are most of a step's work and
memory. So all pairs are scored without gradient, and the backward pass scores those that count once more, with it.
Where many count, as in a loss over all negatives, it goes through all pairs instead, some pictures at a time. Both ways
give the gradients of all pairs scored with gradient, in the memory of one part.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from diptych.common.fused import has_kernels
from diptych.matchers.base import Matcher
from diptych.matchers.bounded.groups import like_lengths
from diptych.matchers.bounded.memory import part_of
from diptych.matchers.kept import Kept

# Bytes of working memory up to which all pairs are simply scored with gradient: nothing is then worth computing twice.
# On a CPU not more than one part's.
PLAIN = 1 << 28
# Bytes of working memory of one part: on a CPU what its caches hold. Fixed, and not what happens to be free: sums come
# out the same in every run.
WORK = {"cpu": 1 << 25, "cuda": 1 << 31}
# With gradient a pair takes up to so many times the memory: 2.7 times is kept of MMCA's, and there is what works on it.
GRADIENT = 3
# The same where fused kernels score without gradient: few large parts keep a GPU busy.
FUSED_WORK = 1 << 32
# The share of all pairs up to which those that count are scored by themselves, which takes longer for each.
FEW = 0.25

Score = Callable[[Kept, Kept], Tensor]
Where = Tensor | slice  # items of one side


def batch_scores(
    matcher: Matcher,
    images: Kept,
    texts: Kept,
    *,
    logits: bool = False,
    half: torch.dtype | None = None,
    rows: int | None = None,
) -> Tensor:
    """Scores, or logits, of all pairs of a batch: (n, m) float32, with gradient.

    A matcher's `score` must draw nothing at random, for a pair may be scored twice.
    half: the type that fused kernels multiply in, where the matcher has them; without it all is in float32
    rows: pictures at a time, and as many pairs of those that count; without it, what fits into bounded memory
    """
    floats = matcher.pair_floats(images.mask.shape[1], texts.mask.shape[1])
    plain = 4 * floats * len(images) * len(texts) <= min(PLAIN, _work(images.device))
    if rows is None and (matcher.layout() is not None or plain):
        return (matcher.logits if logits else matcher.score)(images, texts)
    if not (matcher.has_kernels(images.mask.shape[1], texts.mask.shape[1]) and has_kernels(images.device)):
        half = None
    parameters = [parameter for parameter in matcher.parameters() if parameter.requires_grad]
    pairs = _Pairs(matcher, images.detach(), texts.detach(), parameters, logits, half, rows, floats)
    sides = [tensor for side in (images, texts) for tensor in _floats(side).values()]
    scores: Tensor = _CountedScores.apply(pairs, *sides, *parameters)  # type: ignore[no-untyped-call]
    return scores


class _CountedScores(torch.autograd.Function):
    """All scores; in the backward pass, the gradients of both sides and of the matcher's parameters."""

    @staticmethod
    def forward(ctx: Any, pairs: "_Pairs", *tensors: Tensor) -> Tensor:
        ctx.pairs = pairs
        return pairs.score_all()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.pairs.gradients(gradient, ctx.needs_input_grad[1:])


@dataclass(frozen=True)
class _Pairs:
    """All pairs of two sides, without gradient, and how a matcher scores them.

    parameters: those of the matcher that are trained; floats: what `pair_floats` says of these sides
    """

    matcher: Matcher
    images: Kept
    texts: Kept
    parameters: Sequence[nn.Parameter]
    logits: bool
    half: torch.dtype | None
    rows: int | None
    floats: int

    def score_all(self) -> Tensor:
        """(n, m) float32, some pictures at a time."""
        score = self.matcher.logits if self.logits else self.matcher.score
        alike = self._alike()
        parts = []
        with torch.autocast(self.images.device.type, self.half, enabled=self.half is not None):
            for texts in [self.texts] if len(alike) == 1 else [self._texts(which) for which in alike]:
                # Asked where it scores, for kernels take less where they serve these sizes.
                floats = self.matcher.pair_floats(self.images.mask.shape[1], texts.mask.shape[1])
                most = self._most(floats) if self.half is None else max(1, FUSED_WORK // (4 * floats))
                found = [score(self.images[some], texts) for some in self._blocks(most, len(texts))]
                parts.append(found[0] if len(found) == 1 else torch.cat(found))
        # Not a view of what a matcher gave: losses may write into it.
        scores = parts[0].contiguous() if len(parts) == 1 else torch.cat(parts, 1)[:, torch.cat(alike).argsort()]
        return scores if self.half is None else scores.float()

    def gradients(self, gradient: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
        """What the gradient of the scores (n, m) makes of each tensor of both sides and of each parameter.

        wanted: of which of them; None for the others, and for what no score depends on
        """
        sides = [*_floats(self.images).values(), *_floats(self.texts).values()]
        ours = len(_floats(self.images))
        sums: list[Tensor | None] = [None] * len(wanted)
        with torch.enable_grad(), torch.autocast(gradient.device.type, enabled=False):
            for seen, told, score, slopes in self._parts(gradient):
                images = _leaves(self.images[seen], wanted[:ours])
                texts = _leaves(self.texts[told], wanted[ours : len(sides)])
                inputs = [*_floats(images).values(), *_floats(texts).values(), *self.parameters]
                asked = [place for place, want in enumerate(wanted) if want]
                found: Sequence[Tensor | None] = torch.autograd.grad(
                    score(images, texts), [inputs[place] for place in asked], slopes, allow_unused=True
                )
                for place, part in zip(asked, found, strict=True):
                    if part is None:
                        continue
                    total = sums[place]
                    if place >= len(sides):
                        # Not in place: of a sum of two parameters, autograd gives both the same tensor.
                        sums[place] = part if total is None else total + part
                        continue
                    if total is None:
                        total = sums[place] = torch.zeros_like(sides[place])
                    _add(total, seen if place < ours else told, part)
        return sums

    def _parts(self, gradient: Tensor) -> Iterator[tuple[Where, Where, Score, Tensor]]:
        """Pictures and sentences that are scored together, how, and the gradient of their scores."""
        counted = gradient.nonzero()
        aligned = self._aligned()
        most = self._most(GRADIENT * self.floats)
        if aligned is not None and len(counted) <= FEW * gradient.numel():
            # Where none counts, one pair without weight tells what has a gradient: optimisers leave the rest alone.
            counted = counted if len(counted) else counted.new_zeros(1, 2)
            for some in counted.split(most if self.rows is None else min(most, self.rows * len(self.texts))):
                seen, told = some.unbind(1)
                yield seen, told, aligned, gradient[seen, told]
            return
        score = self.matcher.logits if self.logits else self.matcher.score
        for rows in self._blocks(most, len(self.texts)):
            yield rows, slice(None), score, gradient[rows]

    def _aligned(self) -> Score | None:
        """How the matcher scores aligned pairs together; None where it has no way of its own."""
        kind = type(self.matcher)
        if kind.score_pairs is Matcher.score_pairs:
            return None
        if not self.logits:
            return self.matcher.score_pairs
        own = kind.logits is Matcher.logits or kind.logit_pairs is not Matcher.logit_pairs
        return self.matcher.logit_pairs if own else None

    def _alike(self) -> list[Tensor]:
        """Positions of sentences of like length; on a GPU, which would be waited for, all of them."""
        texts = self.texts
        return like_lengths(texts.extents) if texts.device.type == "cpu" else [torch.arange(len(texts))]

    def _texts(self, which: Tensor) -> Kept:
        """Some sentences without the padding that none of them needs."""
        return part_of(self.texts, which, int(self.texts.extents[which].max()))

    def _most(self, floats: int) -> int:
        """How many pairs of so many numbers each are one part."""
        return max(1, _work(self.images.device) // (4 * floats))

    def _blocks(self, most: int, texts: int) -> Iterator[slice]:
        """All pictures, so many at a time that with so many sentences no more than `most` pairs are scored at once."""
        rows = self.rows or max(1, most // texts)
        for start in range(0, len(self.images), rows):
            yield slice(start, start + rows)


def _work(device: torch.device) -> int:
    return WORK.get(device.type, PLAIN)


def _floats(kept: Kept) -> dict[str, Tensor]:
    """The tensors that can have a gradient; those of width 0 have none."""
    return {name: tensor for name, tensor in kept.tensors().items() if tensor.is_floating_point() and tensor.numel()}


def _leaves(kept: Kept, wanted: Sequence[bool]) -> Kept:
    """The same with tensors that collect a gradient, where it is wanted."""
    leaves = {
        name: tensor.detach().requires_grad_(want)
        for (name, tensor), want in zip(_floats(kept).items(), wanted, strict=True)
    }
    return replace(kept, **leaves)


def _add(total: Tensor, where: Where, part: Tensor) -> None:
    """Add a part's gradients to those of the items that it is of, which may be there several times."""
    if isinstance(where, slice):
        total[where] += part
    else:
        total.index_put_((where,), part, accumulate=True)  # on a GPU in one order always, which index_add_ has not
