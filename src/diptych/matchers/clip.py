"""CLIP (Radford et al., ICML 2021), SigLIP (Zhai et al., ICCV 2023) and their kin: one vector a side, by cosine.

Their patch and word tokens can also be what another matcher is trained over: give it an `image` of kind `pixels` (or
`features`) whose backbone, and a `text` of kind `transformer` whose name, is such a model.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from diptych.common.bounds import check_bounds
from diptych.common.fused import inner_products
from diptych.encoders.encoded import Encoded, l2
from diptych.encoders.towers import TowerConfig, joint_dimension
from diptych.matchers.base import Layout, Matcher, Sides, View
from diptych.matchers.kept import Kept


@dataclass(frozen=True)
class CLIPConfig:
    """A model with two towers.

    image, text: the towers, both of one model; dim: the dimension of the space that they share, the model's own
    """

    image: TowerConfig
    text: TowerConfig
    kind: Literal["clip"] = "clip"
    dim: int = 512

    def __post_init__(self) -> None:
        check_bounds(self, "dim", low=1)
        if self.image.name != self.text.name:
            raise ValueError(f"text: expected the other tower of {self.image.name!r}, got {self.text.name!r}")


def pretrained_towers(name: str) -> CLIPConfig:
    """The configuration of a model of Hugging Face, a folder or a name of the hub, as it was published."""
    return CLIPConfig(TowerConfig(name), TowerConfig(name), dim=joint_dimension(name))


class CLIP(Matcher):
    """Two towers. A score is the cosine of their vectors; the models' own scale and bias would change no order.

    A picture's vector does not follow from its patch tokens: to leave one out, the patch is painted over.
    """

    title = "CLIP"
    follows_locals = False
    config: CLIPConfig

    def keep_images(self, encoded: Encoded) -> Kept:
        """(n, 1, d)."""
        return _own_vector(encoded)

    def keep_texts(self, encoded: Encoded) -> Kept:
        """(n, 1, d)."""
        return _own_vector(encoded)

    def score(self, images: Kept, texts: Kept) -> Tensor:
        """The cosine: (n, m)."""
        return inner_products(images.vectors[:, 0], texts.vectors[:, 0])

    def score_pairs(self, images: Kept, texts: Kept) -> Tensor:
        """The same for aligned pairs: (n,)."""
        return (images.vectors[:, 0] * texts.vectors[:, 0]).sum(-1)

    def layout(self) -> Layout:
        """One vector an item."""
        return Layout(self.config.dim)

    def see(self, images: Kept, texts: Kept, encoded: Sides | None = None) -> dict[str, View]:
        """region_fit, word_fit: the cosine of each patch with the sentence, of each word token with the picture."""
        if encoded is None:
            return {}
        patches, words = (l2(side.vectors).masked_fill(~side.mask.unsqueeze(-1), 0) for side in encoded)
        return {
            "region_fit": View(torch.einsum("nrd,md->nmr", patches, texts.vectors[:, 0]), ("regions",)),
            "word_fit": View(torch.einsum("mwd,nd->nmw", words, images.vectors[:, 0]), ("words",)),
        }


def _own_vector(encoded: Encoded) -> Kept:
    assert encoded.whole is not None  # towers always have it
    vectors = l2(encoded.whole).unsqueeze(1)
    return Kept(vectors, torch.ones(vectors.shape[:2], dtype=torch.bool, device=vectors.device))
