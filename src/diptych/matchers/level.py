"""Find what pictures and sentences score with the other side anyway, from a bank of both.

Nothing is trained. Centres of clusters of each side of the bank, the training data for example, stand for it in
`diptych.matchers.hubs`. Collections count the same, however large they are.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.encoders.encoded import l2
from diptych.matchers.hubs import Bank, HubConfig, Hubs

ROUNDS = 10  # of Lloyd's algorithm
AT_ONCE = 4096  # vectors that are compared with all centres at a time


def find_hubs(banks: Sequence[Bank], hubs: HubConfig, dim: int, seed: int = 0) -> tuple[Hubs, Hubs]:
    """Those of pictures and those of sentences, for vectors of `dim` numbers.

    hubs: how many prototypes and directions at most; there are no more than the smallest collection calls for
    """
    if not banks:
        raise DiptychError("expected at least one bank of pictures and sentences")
    fewest = min(len(side) for bank in banks for side in (bank.pictures, bank.sentences))
    each = min(hubs.prototypes // len(banks), fewest)
    if each < 1:
        raise DiptychError(f"expected a prototype or more for each of {len(banks)} collections, and none of them empty")
    hubs = replace(hubs, prototypes=each * len(banks), dim=min(hubs.dim, dim))
    random = torch.Generator().manual_seed(seed)
    pictures = [l2(bank.pictures[:, :dim].float().cpu()) for bank in banks]
    sentences = [l2(bank.sentences[:, :dim].float().cpu()) for bank in banks]
    return found_hubs(hubs, sentences, pictures, random), found_hubs(hubs, pictures, sentences, random)


def found_hubs(hubs: HubConfig, others: Sequence[Tensor], own: Sequence[Tensor], random: torch.Generator) -> Hubs:
    """What items like `own`, collection by collection (n, d), score with the other side's, `others` (m, d), anyway."""
    each = hubs.prototypes // len(others)
    second_moments = sum((part.T @ part / len(part) for part in others), torch.zeros(()))
    directions = torch.linalg.eigh(second_moments).eigenvectors[:, -hubs.dim :]
    centres, shares = zip(*(clusters(part @ directions, each, random) for part in others), strict=True)
    found = Hubs(hubs, len(directions)).eval()
    found.directions.copy_(directions)
    found.prototypes.copy_(torch.cat(centres))
    found.log_shares.copy_((torch.cat(shares) / len(others)).clamp(min=1e-8).log())  # an empty cluster counts nothing
    found.usual.copy_(torch.stack([found(part).mean() for part in own]).mean())
    return found


def clusters(points: Tensor, count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """k-means of points (n, d): centres (count, d), and each one's share of the points (count,)."""
    centres = points[torch.randperm(len(points), generator=random)[:count]].clone()
    sizes = torch.ones(count)
    for _ in range(ROUNDS):
        half = centres.square().sum(1) / 2
        nearest = torch.cat([(part @ centres.T - half).argmax(1) for part in points.split(AT_ONCE)])
        sizes = torch.bincount(nearest, minlength=count).float()
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        centres = torch.where(sizes.unsqueeze(1) > 0, sums / sizes.clamp(min=1).unsqueeze(1), centres)
    return centres, sizes / len(points)
