"""A step asks nothing of its device, for a GPU is waited for: on `meta`, which holds no numbers, to ask is an error."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from diptych.data.batches import LocalFeatures, pad_regions, pad_tokens
from diptych.encoders.images import FeatureConfig, FeatureEncoder
from diptych.encoders.texts import GRUConfig, GRUEncoder
from diptych.matchers.dive import DivEKept
from diptych.training.held_features import HeldFeatures, choose_rows
from diptych.training.terms.catalog import TERMS, weighted_terms

META = torch.device("meta")


def ragged() -> LocalFeatures:
    return pad_regions([np.ones((2, 4)), np.ones((3, 4))])


@pytest.mark.parametrize("projection", ["linear", "residual", "residual-hidden"])
@pytest.mark.parametrize("held", [False, True])
def test_local_features(projection: str, held: bool) -> None:
    encoder = FeatureEncoder(FeatureConfig(feature_dim=4, projection=projection), 8).to(META).train()  # type: ignore[arg-type]
    batch = ragged().to(META)
    if held:
        starts = torch.tensor([0, 2, 5])
        batch = HeldFeatures(torch.ones(5, 4, device=META), starts).cut(choose_rows(starts, [1, 0], 0.5).to(META))
    encoded = encoder(batch)
    assert encoded.vectors.shape[::2] == (2, 8)
    encoded.vectors.sum().backward()


def test_sentences() -> None:
    encoder = GRUEncoder(GRUConfig(word_dim=4), 8, ["a"] * 9, pretrained=False).to(META).train()
    encoded = encoder(pad_tokens([[5, 6, 7], [5]]).to(META))
    assert encoded.vectors.shape == (2, 3, 8)
    encoded.vectors.sum().backward()


@pytest.mark.parametrize("name", sorted(TERMS))
def test_terms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # there is none on this device
    sides = []
    for n in (2, 3):
        vectors = torch.ones(n, 4, 6, device=META, requires_grad=True)
        sides.append(DivEKept(vectors, torch.ones(n, 4, dtype=torch.bool, device=META), vectors))
    (term,) = weighted_terms({name: 1.0}, *sides, "dive").values()
    term.backward()


def test_asking_is_an_error() -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        bool(torch.ones(1, device=META).any())
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ones(3, dtype=torch.bool, device=META).nonzero()
