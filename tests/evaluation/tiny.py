"""A small collection with features, and small untrained matchers for it."""

from pathlib import Path

import numpy as np

from diptych.data.collection import Collection, Item, Regions, sentences
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import MatcherConfig, build_matcher
from tests.matchers.cases import CASES
from tests.matchers.inputs import FEATURE_DIM

WORDS = "a red blue big small dog cat boat sits runs left of the on and two three".split()


class Arrays:
    """Local features at hand."""

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self.arrays = arrays

    @property
    def dim(self) -> int:
        return self.arrays[0].shape[1]

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, row: int) -> Regions:
        return Regions(self.arrays[row])


def captions(count: int, each: int = 5, seed: int = 0) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [[" ".join(rng.choice(WORDS, rng.integers(1, 8))) for _ in range(each)] for _ in range(count)]


def collection(count: int = 9, seed: int = 0) -> Collection:
    """Pictures with one to four regions and five sentences."""
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=(int(rng.integers(1, 5)), FEATURE_DIM)).astype(np.float32) for _ in range(count)]
    items = [
        Item(f"p{i}", sentences(texts, f"p{i}"), "test", row=i) for i, texts in enumerate(captions(count, seed=seed))
    ]
    return Collection("tiny", items, Arrays(arrays))


def matcher(case: str = "vse++", seed: int = 0) -> Matcher:
    import torch

    torch.manual_seed(seed)
    config: MatcherConfig = CASES[case]
    return build_matcher(config, WordTokenizer(Vocabulary.build([" ".join(WORDS)], at_least=1))).eval()


def precomp(folder: Path, count: int = 9, seed: int = 0) -> Path:
    """The field's folder with a test split."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    np.save(folder / "test_ims.npy", rng.normal(size=(count, 3, FEATURE_DIM)).astype(np.float32))
    lines = [text for texts in captions(count, seed=seed) for text in texts]
    (folder / "test_caps.txt").write_text("\n".join(lines) + "\n")
    return folder
