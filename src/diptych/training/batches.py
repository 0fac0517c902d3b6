"""Batches of a run: which pictures and captions meet in which step, and their tensors.

Everything follows from (seed, epoch, step), never from what ran before, so a resumed run sees what an unbroken one
would have seen, and several processes share the very batches that one would have had.
"""

from array import array
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from diptych.common.errors import DiptychError
from diptych.data.batches import ImageBatch, Pixels, Tokens, pad_regions
from diptych.data.collection import Collection
from diptych.data.foils import foil
from diptych.data.open_picture import open_picture
from diptych.data.tokens import Tokenizer
from diptych.encoders.backbones import Preprocess
from diptych.encoders.preprocess import augment as augment_picture
from diptych.encoders.size_augmentation import drop_regions, drop_words
from diptych.training.held_features import HeldRows, choose_rows
from diptych.training.held_pictures import Views, draw_views
from diptych.training.neighbours import group_alike
from diptych.training.signals import leave_signals_to_the_trainer

Sampling = Literal["captions", "one-caption", "all-captions"]
Pair = tuple[int, int]  # picture, and which of its captions


@dataclass(frozen=True)
class Batch:
    """One step's share of one process.

    texts: the captions, and behind them foils: sentences that are nobody's; of held sentences, which
    picture_ids: (n,), positions of the pictures in the collection; owners: (m,), each caption's picture in the batch
    """

    images: ImageBatch | Views | HeldRows
    texts: Tokens | HeldRows
    picture_ids: Tensor
    owners: Tensor

    def to(self, device: torch.device) -> "Batch":
        """On another device."""
        return Batch(
            self.images.to(device),
            self.texts.to(device),
            self.picture_ids.to(device, non_blocking=True),
            self.owners.to(device, non_blocking=True),
        )

    def pin_memory(self) -> "Batch":
        """In memory from which a GPU copies while other work goes on."""
        return Batch(
            self.images.pin_memory(), self.texts.pin_memory(), self.picture_ids.pin_memory(), self.owners.pin_memory()
        )


@dataclass(frozen=True)
class Augmentation:
    """What is done to inputs in training only."""

    drop_regions: float = 0.0
    drop_words: float = 0.0
    pictures: bool = False
    foils: int = 0


def epoch_batches(
    collection: Collection,
    sampler: Sampling,
    batch_size: int,
    seed: int,
    epoch: int,
    alike: np.ndarray | None = None,
    group: int = 1,
) -> list[list[Pair]]:
    """The pairs of each step of an epoch; an incomplete last batch is left out unless it is the only one.

    alike: (pictures, depth), each picture's neighbours: batches are then made of groups of pictures that are alike
    """
    rng = np.random.default_rng([seed, epoch])
    counts = [len(item.sentences) for item in collection.items]
    units: list[list[Pair]]
    if sampler == "captions":
        units = [[(i, c)] for i, count in enumerate(counts) for c in range(count)]
    elif sampler == "one-caption":
        units = [[(i, int(rng.integers(count)))] for i, count in enumerate(counts) if count]
    else:
        units = [[(i, c) for c in range(count)] for i, count in enumerate(counts) if count]
    if not units:
        raise DiptychError(f"{collection.name}: no captions to train on")
    order = rng.permutation(len(units))
    if alike is not None:
        place = {unit[0][0]: i for i, unit in enumerate(units)}
        pictures = np.array([units[i][0][0] for i in order])
        order = np.array([place[picture] for picture in group_alike(pictures, alike, group, rng)])
    batches = [
        [pair for unit in order[start : start + batch_size] for pair in units[unit]]
        for start in range(0, len(units), batch_size)
    ]
    if len(batches) > 1 and len(units) % batch_size:
        batches.pop()
    return batches


def share(pairs: list[Pair], rank: int, world: int) -> list[Pair]:
    """One process's part of a batch: whole pictures, in turn, so that no picture is encoded twice."""
    pictures = list(dict.fromkeys(picture for picture, _ in pairs))
    mine = set(pictures[rank::world])
    return [pair for pair in pairs if pair[0] in mine]


class RunDataset(Dataset[Batch]):
    """All batches of a run; item (epoch, step) is one process's share of that step."""

    def __init__(
        self,
        collection: Collection,
        tokenizer: Tokenizer,
        preprocess: Preprocess | None,
        augmentation: Augmentation,
        batches: Callable[[int], list[list[Pair]]],
        seed: int,
        rank: int = 0,
        world: int = 1,
        held_side: int | None = None,
        columns: int = 1,
        held_starts: Tensor | None = None,
        held_sentences: Tensor | None = None,
    ) -> None:
        self.collection = collection
        self.tokenizer = tokenizer
        self.preprocess = preprocess
        self.augmentation = augmentation
        self.batches = lru_cache(maxsize=2)(batches)
        self.seed = seed
        self.rank = rank
        self.world = world
        self.held_side = held_side  # of pictures that are held elsewhere: batches then only say what to cut
        self.held_starts = held_starts  # of features that are held elsewhere: batches then only say which
        self.held_sentences = held_sentences  # where each begins among tokens that are held elsewhere
        counts = [len(item.sentences) for item in collection.items]
        self._first = np.concatenate([[0], np.cumsum(counts)])  # of each picture's sentences among all
        self.columns = columns  # what the length of padded sentences is a multiple of
        self._ids: dict[Pair, array[int]] = {}

    def __getitem__(self, place: tuple[int, int]) -> Batch:
        epoch, step = place
        pairs = share(self.batches(epoch)[step], self.rank, self.world)
        if not pairs:
            raise DiptychError(
                f"training.batch_size: a batch has fewer pictures than the {self.world} processes; use more"
            )
        pictures = list(dict.fromkeys(picture for picture, _ in pairs))
        position = {picture: i for i, picture in enumerate(pictures)}
        draw = np.random.default_rng([self.seed, epoch, step, self.rank])
        generator = torch.Generator().manual_seed(int(draw.integers(2**62)))
        return Batch(
            images=self._images(pictures, generator),
            texts=self._texts(pairs, generator),
            picture_ids=torch.tensor(pictures),
            owners=torch.tensor([position[picture] for picture, _ in pairs]),
        )

    def _texts(self, pairs: list[Pair], generator: torch.Generator) -> Tokens | HeldRows:
        if self.held_sentences is not None:
            return choose_rows(self.held_sentences, [int(self._first[picture]) + caption for picture, caption in pairs])
        ids = [self._sentence(pair) for pair in pairs]
        ids += [self.tokenizer.ids(text) for text in self._foils(pairs, generator)]
        if self.augmentation.drop_words > 0:
            ids = [drop_words(s, self.tokenizer, self.augmentation.drop_words, generator) for s in ids]
        return self.tokenizer.pad(ids).widened(self.columns)

    def _foils(self, pairs: list[Pair], generator: torch.Generator) -> list[str]:
        """Captions of this step in which one word is another, so many a picture at most."""
        if self.augmentation.foils == 0:
            return []
        rng = np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))
        own: dict[int, list[Pair]] = {}
        for pair in pairs:
            own.setdefault(pair[0], []).append(pair)
        found = []
        for captions in own.values():
            for choice in rng.permutation(len(captions))[: self.augmentation.foils]:
                picture, caption = captions[choice]
                made = foil(self.collection.items[picture].sentences[caption].text, rng)
                if made is not None:
                    found.append(made.text)
        return found

    def _sentence(self, pair: Pair) -> list[int]:
        """A caption's tokens, found once."""
        ids = self._ids.get(pair)
        if ids is None:
            picture, caption = pair
            ids = array("i", self.tokenizer.ids(self.collection.items[picture].sentences[caption].text))
            self._ids[pair] = ids
        return ids.tolist()

    def _images(self, pictures: list[int], generator: torch.Generator) -> ImageBatch | Views | HeldRows:
        if self.held_starts is not None:
            return choose_rows(self.held_starts, pictures, self.augmentation.drop_regions, generator)
        if self.held_side is not None:
            return draw_views(pictures, self.held_side, generator if self.augmentation.pictures else None)
        items = [self.collection.items[i] for i in pictures]
        if self.preprocess is None:
            return self._regions(pictures, generator)
        pixels = []
        for item in items:
            if item.open is None:
                raise DiptychError(f"{item.id}: the data has no picture, and the matcher needs pixels")
            picture = open_picture(item.open)
            if self.augmentation.pictures:
                picture = augment_picture(picture, generator)
            pixels.append(self.preprocess.pixels(picture))
        return Pixels(torch.from_numpy(np.stack(pixels)))

    def _regions(self, pictures: list[int], generator: torch.Generator) -> ImageBatch:
        features = self.collection.features
        if features is None:
            raise DiptychError(f"{self.collection.name}: the data has no local features, and the matcher needs them")
        rows = [self.collection.items[i].row for i in pictures]
        missing = next((i for i, row in zip(pictures, rows, strict=True) if row is None), None)
        if missing is not None:
            raise DiptychError(f"{self.collection.items[missing].id}: the feature file has no row for this picture")
        names = [self.collection.items[i].id for i in pictures]
        batch = pad_regions([features[row] for row in rows if row is not None], names)
        if self.augmentation.drop_regions > 0:
            batch = drop_regions(batch, self.augmentation.drop_regions, generator)
        return batch


class _Places(Sampler[tuple[int, int]]):
    """Every (epoch, step) of a run from a place on, in order."""

    def __init__(self, dataset: RunDataset, epoch: int, step: int, epochs: int) -> None:
        self.dataset, self.start, self.epochs = dataset, (epoch, step), epochs

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch, first = self.start
        for later in range(epoch, self.epochs):
            yield from ((later, step) for step in range(first, len(self.dataset.batches(later))))
            first = 0


def iterate(dataset: RunDataset, epoch: int, step: int, epochs: int, workers: int) -> Generator[Batch, None, None]:
    """The batches from a place of the run on, made ahead (over the ends of epochs too) by worker processes."""
    loader = DataLoader(
        dataset,
        batch_size=None,
        sampler=_Places(dataset, epoch, step, epochs),
        num_workers=workers,
        prefetch_factor=4 if workers else None,
        pin_memory=torch.cuda.is_available(),
        worker_init_fn=leave_signals_to_the_trainer if workers else None,
    )
    yield from loader
