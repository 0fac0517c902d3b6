"""Hubs: vectors that are near to much that they do not fit, and a score that takes that off.

Among vectors of many dimensions some are among the nearest of very many others (Radovanović et al., JMLR 2010): such
are pictures that many a sentence finds without meaning them. What a picture v scores with sentences anyway, h(v), and
what a sentence t scores with pictures anyway, g(t), are therefore taken off:

    s(v, t) = v . t - share h(v) - sentence_share g(t),    h(v) = temperature log sum_k p_k exp(v . c_k / temperature)

With c_k the sentences of a bank and p_k = 1 / bank this is the inverted softmax (Smith et al., ICLR 2017), for pictures
and sentences querybank normalisation (Bogolin et al., CVPR 2022). Here both sides have one, and c_k are a few thousand
centres of clusters of the bank, compared in the directions in which the bank varies most.

Less is taken off sentences: of two about one picture the likelier one, mostly the true one, loses more.

Since h is the picture's own and g the sentence's, the score stays the inner product of one unit vector a side, so
whatever compares vectors compares these:

    (v, -share h(v) / EDGE, EDGE),    (t, EDGE, -sentence_share g(t) / EDGE),    both divided by their lengths

where each of the two numbers more is spread over four, so that none is much larger than the vector's own: stores that
round to few bits go by the largest.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from diptych.common.bounds import check_bounds
from diptych.encoders.encoded import l2

SPREAD = 4
EXTRA = 2 * SPREAD
# How long the constant number is beside a vector of length 1: as small as lets the division by lengths change little.
EDGE = 0.25

Side = Literal["pictures", "sentences"]


@dataclass(frozen=True)
class HubConfig:
    """How hubs are levelled; what they are comes from a bank of pictures and sentences (`diptych level`).

    prototypes: centres that stand for the bank's other side; dim: directions in which they are compared
    temperature: how near a centre must be to count
    share: how much of h is taken off; sentence_share: how much of g
    """

    prototypes: int = 4096
    dim: int = 256
    temperature: float = 1 / 30
    share: float = 0.6
    sentence_share: float = 0.3

    def __post_init__(self) -> None:
        check_bounds(self, "prototypes", "dim", low=1)
        check_bounds(self, "temperature", above=0)
        check_bounds(self, "share", "sentence_share", low=0, high=1)


@dataclass(frozen=True)
class Bank:
    """Vectors of one collection, as a matcher keeps them: pictures (n, d) and sentences (m, d)."""

    pictures: Tensor
    sentences: Tensor


class Hubs(nn.Module):
    """What items of one side score with the other side anyway: h of pictures, or g of sentences."""

    directions: Tensor
    prototypes: Tensor
    log_shares: Tensor
    usual: Tensor

    def __init__(self, config: HubConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("directions", torch.zeros(dim, config.dim))
        self.register_buffer("prototypes", torch.zeros(config.prototypes, config.dim))
        self.register_buffer("log_shares", torch.zeros(config.prototypes))
        self.register_buffer("usual", torch.zeros(()))  # the mean of h: what is the same for all says nothing

    def forward(self, vectors: Tensor) -> Tensor:
        """Unit vectors (n, d) -> how much more than usual each scores with the other side (n,), in float32."""
        nearness = vectors.float() @ self.directions.float() @ self.prototypes.float().T
        temperature = self.config.temperature
        return temperature * torch.logsumexp(nearness / temperature + self.log_shares.float(), 1) - self.usual.float()

    def levelled(self, vectors: Tensor, side: Side) -> Tensor:
        """Unit vectors (n, d) -> those (n, d + EXTRA) whose inner product with the other side's is levelled."""
        wide = SPREAD**0.5
        share = self.config.share if side == "pictures" else self.config.sentence_share
        taken = (-share * self(vectors) / (EDGE * wide)).unsqueeze(1).expand(-1, SPREAD)
        edge = torch.full_like(taken, EDGE / wide)
        more = [taken, edge] if side == "pictures" else [edge, taken]
        return l2(torch.cat([vectors.float(), *more], 1)).to(vectors.dtype)
