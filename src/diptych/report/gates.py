"""The gates of a matcher that has them, as CAMP does, on right and wrong pairs, counted."""

from dataclasses import dataclass

import numpy as np
import torch

from diptych.common.progress import track
from diptych.report.subject import Subject, draw

BINS = 20
PAIRS = 300


@dataclass(frozen=True, eq=False)
class Gates:
    """Gates of every region or word of the pairs, the mean over d of a gate vector: (gates,), each from 0 to 1.

    By kind: `positive` pairs are a sentence with its own picture, `negative` ones with another.
    """

    regions: dict[str, np.ndarray]
    words: dict[str, np.ndarray]
    pairs: int

    def counts(self, side: str) -> dict[str, np.ndarray]:
        """How many gates fall into each of 20 equal parts from 0 to 1: (20,) int64 by kind of pair."""
        gates = self.regions if side == "regions" else self.words
        return {kind: np.histogram(values, bins=BINS, range=(0, 1))[0] for kind, values in gates.items()}


def gate_pairs(subject: Subject, seed: int = 0, most: int = PAIRS) -> dict[str, list[tuple[int, int]]]:
    """Pairs (picture, sentence) that are looked at: sentences drawn with the seed, with their own and another picture.

    With a single picture there is no wrong one.
    """
    sentences = draw(len(subject.captions), most, seed)
    count = len(subject.collection)
    steps = np.random.default_rng(seed).integers(1, max(count, 2), len(sentences))
    pairs = {"positive": [(int(subject.owners[j]), j) for j in sentences]}
    if count > 1:
        pairs["negative"] = [
            ((int(subject.owners[j]) + int(step)) % count, j) for j, step in zip(sentences, steps, strict=True)
        ]
    return pairs


def gates_of(subject: Subject, seed: int = 0) -> Gates | None:
    """The gates of drawn pairs; none where the matcher has no gates."""
    regions: dict[str, np.ndarray] = {}
    words: dict[str, np.ndarray] = {}
    pairs = gate_pairs(subject, seed)
    for kind, chosen in pairs.items():
        of_regions, of_words = [], []
        for picture, sentence in track(chosen, f"gates of {kind} pairs", unit="pairs"):
            gates = _gates_of_pair(subject, picture, sentence)
            if gates is None:
                return None
            of_regions.append(gates[0])
            of_words.append(gates[1])
        regions[kind], words[kind] = np.concatenate(of_regions), np.concatenate(of_words)
    return Gates(regions, words, len(pairs["positive"]))


def _gates_of_pair(subject: Subject, picture: int, sentence: int) -> tuple[np.ndarray, np.ndarray] | None:
    """The gates of a pair's regions and of its words: (regions,), (words,)."""
    matcher = subject.matcher
    images = subject.images[[picture]].trim().to(matcher.device, torch.float32)
    texts = subject.texts[[sentence]].trim().to(matcher.device, torch.float32)
    with matcher.inference():
        views = matcher.see(images, texts)
    if "region_gates" not in views or "word_gates" not in views:
        return None
    regions = views["region_gates"].values[0, 0][images.mask[0]].cpu().numpy()
    return regions, views["word_gates"].values[0, 0][texts.mask[0]].cpu().numpy()
