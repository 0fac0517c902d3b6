"""In-batch negatives over several processes: what each kept is gathered with its gradient."""

from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from diptych.matchers.kept import Kept


class _AllGather(torch.autograd.Function):
    """All processes' tensors; the backward pass sums over processes what each wants of this one's."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> tuple[Tensor, ...]:
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tensor.contiguous())
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        stacked = torch.stack([g.contiguous() for g in gradients])
        dist.all_reduce(stacked)
        return stacked[dist.get_rank()]


def _gather_sizes(numbers: list[int], device: torch.device) -> list[list[int]]:
    mine = torch.tensor(numbers, device=device)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return [part.tolist() for part in parts]


def _gather_rows(tensor: Tensor, sizes: list[int]) -> Tensor:
    """All processes' rows in order, though each may have another number of them."""
    longest = max(sizes)
    missing = longest - len(tensor)
    if missing:
        tensor = torch.cat([tensor, tensor.new_zeros(missing, *tensor.shape[1:])])
    if tensor.is_floating_point():
        parts = _AllGather.apply(tensor)  # type: ignore[no-untyped-call]
    else:
        whole = [torch.empty_like(tensor) for _ in sizes]
        dist.all_gather(whole, tensor.contiguous())
        parts = tuple(whole)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def gather_kept(kept: Kept) -> Kept:
    """The items of all processes, in the processes' order, with gradient."""
    sizes = _gather_sizes([len(kept), kept.mask.shape[1]], kept.device)
    resized = kept.resize(max(k for _, k in sizes))
    rows = [n for n, _ in sizes]
    gathered = {}
    for f in fields(resized):
        tensor: Tensor = getattr(resized, f.name)
        if tensor.dtype == torch.bool:
            gathered[f.name] = _gather_rows(tensor.to(torch.uint8), rows).to(torch.bool)
        else:
            gathered[f.name] = _gather_rows(tensor, rows)
    return type(resized)(**gathered)


@dataclass(frozen=True)
class Gathered:
    """A whole batch, as one process would have had it.

    texts: all captions, then all foils; owners: (captions,); positive: (pictures, captions and foils)
    """

    images: Kept
    texts: Kept
    owners: Tensor
    positive: Tensor


def gather(images: Kept, texts: Kept, picture_ids: Tensor, owners: Tensor) -> Gathered:
    """Put the processes' shares together; positives are told by the pictures' numbers.

    Each process then computes the whole loss. The gathered gradient is the sum over processes, which averaging the
    weights' gradients over processes divides again: the result is the gradient of one process with the whole batch.
    """
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        image_sizes = [n for (n,) in _gather_sizes([len(images)], images.device)]
        text_sizes = _gather_sizes([len(owners), len(texts)], texts.device)
        offset = sum(image_sizes[: dist.get_rank()])
        images, texts = gather_kept(images), gather_kept(texts)
        owners = _gather_rows(owners + offset, [captions for captions, _ in text_sizes])
        picture_ids = _gather_rows(picture_ids, image_sizes)
        texts = texts[_captions_first(text_sizes).to(texts.device)]
    positive = picture_ids.unsqueeze(1) == picture_ids[owners].unsqueeze(0)
    foils = len(texts) - len(owners)
    if foils:
        positive = torch.cat([positive, positive.new_zeros(len(positive), foils)], 1)
    return Gathered(images, texts, owners, positive)


def _captions_first(sizes: list[list[int]]) -> Tensor:
    """The order that puts all processes' captions before their foils; sizes: (captions, captions and foils) of each."""
    captions, foils, start = [], [], 0
    for count, total in sizes:
        captions.append(torch.arange(start, start + count))
        foils.append(torch.arange(start + count, start + total))
        start += total
    return torch.cat(captions + foils)
