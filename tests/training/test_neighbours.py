"""Batches of pictures that are alike."""

from pathlib import Path

import numpy as np
import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.camp import CAMPConfig
from diptych.matchers.catalog import MatcherConfig, build_matcher
from diptych.matchers.vse import VSEConfig
from diptych.training.batches import epoch_batches
from diptych.training.neighbours import NeighboursConfig, find_neighbours, group_alike
from tests.training import toy

CPU = torch.device("cpu")
IMAGE, TEXT = FeatureConfig(feature_dim=8), GRUConfig(word_dim=6)


def saved(config: MatcherConfig, folder: Path) -> str:
    torch.manual_seed(0)
    tokenizer = WordTokenizer(Vocabulary.build(toy.collection().captions()[0], at_least=1))
    build_matcher(config, tokenizer).save_pretrained(folder)
    return str(folder)


def test_neighbours_are_those_of_the_highest_cosines_and_never_the_picture_itself(tmp_path: Path) -> None:
    from diptych.evaluation.encode import encode_pictures
    from diptych.matchers.base import Matcher

    data, model = toy.collection(), saved(VSEConfig(dim=8, image=IMAGE, text=TEXT), tmp_path / "model")
    alike = find_neighbours(NeighboursConfig(model, depth=5), data, None, CPU)
    vectors = encode_pictures(Matcher.from_pretrained(model), data).vectors[:, 0]
    for i, row in enumerate(alike):
        cosines = [(float(torch.cosine_similarity(vectors[i], vectors[j], 0)), j) for j in range(len(data)) if j != i]
        assert set(row) == {j for _, j in sorted(cosines, reverse=True)[:5]}
        assert row[0] == max(cosines)[1]


def test_a_model_that_compares_no_vectors_is_refused(tmp_path: Path) -> None:
    model = saved(CAMPConfig(dim=8, image=IMAGE, text=TEXT), tmp_path / "camp")
    with pytest.raises(DiptychError, match="expected a model that can search"):
        find_neighbours(NeighboursConfig(model), toy.collection(), None, CPU)


def test_each_picture_comes_once_beside_pictures_that_are_alike() -> None:
    # Pictures of one residue modulo 5 are alike, and there are eight of each.
    alike = np.array([[j for j in range(40) if j % 5 == i % 5 and j != i] for i in range(40)])
    rng = np.random.default_rng(0)
    order = group_alike(rng.permutation(40), alike, 4, rng)
    assert sorted(order) == list(range(40))
    assert all(len({picture % 5 for picture in order[start : start + 4]}) == 1 for start in range(0, 40, 4))


def test_a_picture_whose_neighbours_are_taken_stands_alone() -> None:
    alike = np.array([[1], [0], [0], [0]])  # all like 0 but 0 and 1 are like each other
    rng = np.random.default_rng(0)
    assert sorted(group_alike(np.array([0, 1, 2, 3]), alike, 2, rng)) == [0, 1, 2, 3]


def test_epochs_are_made_of_groups_that_change() -> None:
    data = toy.collection()
    alike = np.array([[j for j in range(len(data)) if j % 3 == i % 3 and j != i] for i in range(len(data))])
    first, second = (epoch_batches(data, "one-caption", 4, 1, epoch, alike, 2) for epoch in (0, 1))
    assert first != second
    assert first == epoch_batches(data, "one-caption", 4, 1, 0, alike, 2)
    for batch in first:
        residues = [picture % 3 for picture, _ in batch]
        assert residues[0] == residues[1]
        assert residues[2] == residues[3]


def test_captions_of_a_picture_stay_together() -> None:
    data = toy.collection()
    alike = np.array([[j for j in range(len(data)) if j != i] for i in range(len(data))])
    batches = epoch_batches(data, "all-captions", 4, 0, 0, alike, 2)
    for batch in batches:
        for picture in {picture for picture, _ in batch}:
            captions = [caption for other, caption in batch if other == picture]
            assert captions == list(range(len(data.items[picture].sentences)))
