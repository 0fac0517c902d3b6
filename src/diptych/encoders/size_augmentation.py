"""Size augmentation (VSE∞, training only): sets lose some of their members, so that pooling meets sets of all sizes."""

import torch
from torch import Generator, Tensor

from diptych.data.batches import LocalFeatures
from diptych.data.tokens import Tokenizer


def stay(mask: Tensor, p: float, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
    """Which regions stay when every real one goes with probability p, never all of a picture.

    mask (n, regions) -> their places (n, most that stay), in order, and which of these places are real.
    """
    draws = torch.rand(mask.shape, generator=generator, device=mask.device)
    draws = draws.masked_fill(~mask, -1)
    # The region with the largest draw is the last to go, so it stays whatever p is.
    last = torch.zeros_like(mask).scatter(1, draws.argmax(1, keepdim=True), True)
    stays = mask & ((draws >= p) | last)
    longest = max(1, int(stays.sum(1).max())) if len(mask) else mask.shape[1]
    order = stays.long().sort(dim=1, descending=True, stable=True).indices[:, :longest]
    return order, stays.gather(1, order)


def drop_regions(batch: LocalFeatures, p: float, generator: Generator | None = None) -> LocalFeatures:
    """Every real region goes with probability p, never all of a picture; those that stay come first, in order."""
    order, mask = stay(batch.mask, p, generator)
    vectors = batch.vectors.gather(1, order.unsqueeze(-1).expand(-1, -1, batch.vectors.shape[-1]))
    return LocalFeatures(vectors.masked_fill(~mask.unsqueeze(-1), 0), mask)


def drop_words(ids: list[int], tokenizer: Tokenizer, p: float, generator: Generator | None = None) -> list[int]:
    """Every word is hit with probability p: half of those become the mask token, a tenth a random one, the rest go.

    Never do all words of a sentence go, and special tokens (start, end, [CLS], [SEP]) always stay. Pieces that begin
    with ## share the fate of the word before them.
    """
    words = _words(ids, tokenizer)
    draws = torch.rand(len(words), generator=generator).tolist()
    if words and all(0.6 * p <= draw < p for draw in draws):
        draws[draws.index(max(draws))] = 1.0
    out: list[int] = []
    done = 0
    for (start, end), draw in zip(words, draws, strict=True):
        out += ids[done:start]
        if draw < 0.5 * p:
            out += [tokenizer.mask_id] * (end - start)
        elif draw < 0.6 * p:
            out += [_random_token(tokenizer, generator) for _ in range(start, end)]
        elif draw >= p:
            out += ids[start:end]
        done = end
    return out + ids[done:]


def drop_cells(mask: Tensor, generator: Generator | None = None) -> Tensor:
    """Cells of a grid: u ~ U(0, 1) for each picture; where u > 0.2 each cell goes with probability 0.2 u.

    9.6 % go on average. (n, cells) -> (n, cells), never all of a picture.
    """
    u = torch.rand(len(mask), 1, generator=generator, device=mask.device)
    draws = torch.rand(mask.shape, generator=generator, device=mask.device).masked_fill(~mask, -1)
    last = torch.zeros_like(mask).scatter(1, draws.argmax(1, keepdim=True), True)
    return mask & ((draws >= 0.2 * u) | (u <= 0.2) | last)


def _words(ids: list[int], tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """Where each word begins and ends, special tokens left out."""
    spans: list[tuple[int, int]] = []
    special = tokenizer.special_ids
    for position, (number, piece) in enumerate(zip(ids, tokenizer.pieces(ids), strict=True)):
        if number in special:
            continue
        if piece.startswith("##") and spans and spans[-1][1] == position:
            spans[-1] = (spans[-1][0], position + 1)
        else:
            spans.append((position, position + 1))
    return spans


def _random_token(tokenizer: Tokenizer, generator: Generator | None) -> int:
    """Any token but a special one."""
    special = tokenizer.special_ids
    while True:
        number = int(torch.randint(tokenizer.size, (), generator=generator))
        if number not in special:
            return number
