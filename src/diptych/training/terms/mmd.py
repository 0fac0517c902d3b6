"""Maximum mean discrepancy: draws what is kept of pictures and what is kept of sentences together (DivE)."""

import torch
from torch import Tensor

from diptych.matchers.kept import Kept
from diptych.training.terms.base import LossTerm


def mmd(images: Kept, texts: Kept) -> Tensor:
    """Maximum mean discrepancy between the real vectors x of all pictures and y of all sentences.

    mean k(x, x') - 2 mean k(x, y) + mean k(y, y') over all vectors, k = exp(-0.5 ‖x - y‖), the distance not squared.
    """
    with torch.autocast(images.device.type, enabled=False):
        (x, p), (y, q) = _weighed(images), _weighed(texts)
        # The three means are one sum over all pairs of vectors, in which those of sentences count negatively.
        z, share = torch.cat([x, y]), torch.cat([p, -q])
        return share @ _kernel(z) @ share


def _weighed(side: Kept) -> tuple[Tensor, Tensor]:
    """All vectors in one row (n k, d), and the share of each in their mean (n k,): none where it is padding.

    To pick those that are no padding would be to ask a GPU how many they are, and to wait for its answer.
    """
    vectors = side.vectors.masked_fill(~side.mask.unsqueeze(-1), 0).flatten(0, 1)
    real = side.mask.flatten().to(torch.promote_types(vectors.dtype, torch.float32))
    return vectors.to(real.dtype), real / real.sum()


def _kernel(z: Tensor) -> Tensor:
    """Of every vector with every vector: (n, d) -> (n, n)."""
    lengths = (z * z).sum(-1)
    squared = torch.addmm(lengths.unsqueeze(1) + lengths, z, z.T, alpha=-2)
    # The root has no slope at 0, where a vector meets itself or its double: those pairs are constant.
    near = squared < 1e-6
    return torch.exp(-0.5 * squared.masked_fill(near, 1).sqrt().masked_fill(near, 0))


MMD = LossTerm(mmd)
