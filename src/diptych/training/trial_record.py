"""What is known of a trial once it is done: small enough to be kept with the source, and enough for every table."""

from dataclasses import dataclass, field
from pathlib import Path

from diptych.common.config import parse, read_json, to_tree
from diptych.common.files import write_json


@dataclass(frozen=True)
class TrialRecord:
    """One recipe, or variant of it, with one seed: what it cost and how good it is.

    parameters: numbers that were trained; steps: optimiser steps
    at_once: processes that trained and scored on the device at the same time, which the seconds are of
    train_seconds: from the start to the last evaluation, all starts together
    encode_seconds, score_seconds: of the test split, and of `pairs` pairs of it
    train_bytes, score_bytes: most memory of the device beyond what was held there before; None on a CPU,
        and of training that was over before the process began that judged it
    best_epoch: from 1; validation: RSUM after each evaluation
    figures: of the test split, by name with the protocol in front
    queries: checksum of the ids that were asked, so that only what was asked alike is compared
    """

    recipe: str
    variant: str
    seed: int
    parameters: int
    steps: int
    train_seconds: float
    encode_seconds: float
    score_seconds: float
    pairs: int
    images: int
    sentences: int
    best_epoch: int
    validation: tuple[float, ...]
    figures: dict[str, float]
    queries: str
    device: str
    train_bytes: int | None = None
    score_bytes: int | None = None
    at_once: int = 1
    commit: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def save(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        write_json(path, to_tree(self))

    @staticmethod
    def load(path: Path) -> "TrialRecord":
        """Read what `save` wrote; a field that is missing or wrong is named."""
        return parse(TrialRecord, read_json(path), str(path))
