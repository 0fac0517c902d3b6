from collections import Counter

import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.data.batches import LocalFeatures
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.training.batches import Augmentation, RunDataset, epoch_batches, iterate, share
from tests.training import toy

DATA = toy.collection()
CAPTIONS = {(i, c) for i, item in enumerate(DATA.items) for c in range(len(item.sentences))}


def dataset(
    batches: list[list[tuple[int, int]]], augmentation: Augmentation, rank: int = 0, world: int = 1
) -> RunDataset:
    tokenizer = WordTokenizer(Vocabulary.build(DATA.captions()[0], at_least=1))
    return RunDataset(DATA, tokenizer, None, augmentation, lambda epoch: batches, 3, rank, world)


def test_each_caption_comes_once_an_epoch() -> None:
    pairs = [pair for batch in epoch_batches(DATA, "captions", 8, seed=1, epoch=0) for pair in batch]
    assert Counter(pairs) == Counter(CAPTIONS)


def test_one_caption_takes_each_picture_once_and_varies_the_caption() -> None:
    first = [p for b in epoch_batches(DATA, "one-caption", 6, seed=1, epoch=0) for p in b]
    second = [p for b in epoch_batches(DATA, "one-caption", 6, seed=1, epoch=1) for p in b]
    assert sorted(i for i, _ in first) == list(range(len(DATA)))
    assert set(first) != set(second)


def test_all_captions_keeps_a_pictures_captions_together() -> None:
    for batch in epoch_batches(DATA, "all-captions", 5, seed=1, epoch=0):
        assert len({i for i, _ in batch}) == 5
        assert set(batch) == {(i, c) for i, _ in batch for c in range(2)}


def test_an_incomplete_last_batch_is_left_out_unless_it_is_the_only_one() -> None:
    assert [len(b) for b in epoch_batches(DATA, "captions", 10, seed=0, epoch=0)] == [10, 10, 10, 10]
    assert [len(b) for b in epoch_batches(DATA, "captions", 100, seed=0, epoch=0)] == [48]


def test_batches_follow_from_seed_and_epoch_alone() -> None:
    assert epoch_batches(DATA, "captions", 8, 1, 2) == epoch_batches(DATA, "captions", 8, 1, 2)
    assert epoch_batches(DATA, "captions", 8, 1, 2) != epoch_batches(DATA, "captions", 8, 2, 2)
    assert epoch_batches(DATA, "captions", 8, 1, 2) != epoch_batches(DATA, "captions", 8, 1, 3)


def test_processes_share_a_batch_without_sharing_a_picture() -> None:
    batch = epoch_batches(DATA, "captions", 16, seed=1, epoch=0)[0]
    parts = [share(batch, rank, 3) for rank in range(3)]
    assert Counter(p for part in parts for p in part) == Counter(batch)
    pictures = [{i for i, _ in part} for part in parts]
    assert sum(map(len, pictures)) == len(set.union(*pictures))


def test_a_picture_is_encoded_once_however_many_captions_it_has() -> None:
    batch = dataset([[(0, 0), (1, 0), (0, 1)]], Augmentation())[0, 0]
    assert batch.picture_ids.tolist() == [0, 1]
    assert batch.owners.tolist() == [0, 1, 0]
    assert len(batch.images) == 2
    assert len(batch.texts) == 3


def test_augmentation_is_repeatable_and_changes_with_the_step() -> None:
    pairs = [(i, 0) for i in range(20)]
    made = dataset([pairs, pairs], Augmentation(drop_regions=0.5, drop_words=0.5))
    again = dataset([pairs, pairs], Augmentation(drop_regions=0.5, drop_words=0.5))
    assert isinstance(made[0, 0].images, LocalFeatures)
    assert isinstance(made[0, 1].images, LocalFeatures)
    torch.testing.assert_close(made[0, 0].images.mask, again[0, 0].images.mask)
    torch.testing.assert_close(made[0, 0].texts.ids, again[0, 0].texts.ids)
    assert made[0, 0].images.mask.sum(1).tolist() != made[0, 1].images.mask.sum(1).tolist()


@pytest.mark.parametrize("workers", [0, 1])
def test_iterating_can_start_in_the_middle(workers: int) -> None:
    made = dataset([[(0, 0)], [(1, 0)], [(2, 0)]], Augmentation())
    assert [b.picture_ids.tolist() for b in iterate(made, 3, 1, 5, workers)] == [[1], [2], [0], [1], [2]]


def test_too_many_processes_is_said() -> None:
    with pytest.raises(DiptychError, match="batch_size"):
        dataset([[(0, 0)]], Augmentation(), rank=1, world=2)[0, 0]
