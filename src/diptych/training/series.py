"""Many trials one after another in one process, over data that is read once, within a time.

Each trial leaves a small folder as soon as it is done, and is not done again. One that the time ends goes on from its
checkpoint when the series is run again. Several processes may run one series: each takes what no other is at.
"""

import gc
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from diptych.common.device import pick_device
from diptych.common.errors import DiptychError
from diptych.common.files import read_text, written_aside
from diptych.common.fused import has_kernels
from diptych.common.precision import scored_in
from diptych.common.progress import span
from diptych.data.collection import Collection
from diptych.evaluation.encode import encode_pictures, encode_sentences
from diptych.evaluation.evaluate import collection_ids, rounded
from diptych.evaluation.protocols import FOLD, evaluate_source
from diptych.evaluation.real_near_misses import real_near_misses
from diptych.evaluation.result import Evaluation
from diptych.evaluation.sources import MatcherSource, MatrixSource, ScoreSource
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.scoring import score_all
from diptych.training.ablation import Trial
from diptych.training.claim import alone
from diptych.training.data import Splits
from diptych.training.environment import commit, hardware, starts, versions
from diptych.training.held_features import HeldFeatures
from diptych.training.loop import Device, train
from diptych.training.trial_record import TrialRecord

FOLDS = "coco-1k"  # what every trial is judged by, and compared by picture by picture
WHOLE = ("all-pairs", "eccv", "cxc")  # what those are judged by besides whose every pair is scored
SCORES = "scores.npy"
LOCK = ".series"  # beside the trainer's own: of one file a process has one lock, which its first close gives up
SAMPLE = (128, 1024)  # pictures and sentences that tell how long scoring will take
NEAR_MISSES = 1000  # pictures whose captions with one word changed are scored


@dataclass(frozen=True)
class SeriesEntry:
    """A trial of a series.

    whole: every pair of the test split is scored, and the scores stay beside the run; else those of the folds alone
    """

    trial: Trial
    whole: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.trial.recipe.name}, {self.trial.variant}, seed {self.trial.seed}"


@dataclass(frozen=True)
class SeriesEnd:
    """How a series ended: trials that are done, that failed (with why), and that are left for another time."""

    done: tuple[str, ...]
    failed: tuple[str, ...]
    left: tuple[str, ...]


def record_folder(results: Path, trial: Trial) -> Path:
    """Where what is known of a trial goes: RECIPE/VARIANT/seed-N, which `diptych compare` reads as runs."""
    return results / trial.recipe.name / trial.variant / f"seed-{trial.seed}"


def run_series(
    entries: Sequence[SeriesEntry],
    results: Path,
    splits: Splits,
    device: str = "auto",
    until: float | None = None,
    fold: int = FOLD,
    at_once: int = 1,
) -> SeriesEnd:
    """Train and judge each entry that has no record yet, until a time on the clock of `time.monotonic`.

    What another process is at is left to it.

    splits: of all entries; features that are held on the device stay there
    fold: test pictures in a fold
    at_once: processes that run this series on the device, which the records tell
    """
    done, failed = [], []
    for number, entry in enumerate(entries, 1):
        path = record_folder(results, entry.trial) / "trial.json"
        if path.exists():
            done.append(entry.name)
            continue
        if until is not None and time.monotonic() >= until:
            break
        with alone(entry.trial.run / LOCK) as ours:
            if not ours or path.exists():
                continue
            print(f"{number}/{len(entries)}: {entry.name}", file=sys.stderr)
            try:
                record = _run(entry, path.parent, splits, device, until, fold)
            except (DiptychError, torch.OutOfMemoryError) as error:
                print(f"{entry.name}: {error}", file=sys.stderr)
                failed.append(f"{entry.name}: {error}")
                continue
            finally:
                gc.collect()
                torch.cuda.empty_cache()
            if record is None:
                break
            replace(record, at_once=at_once).save(path)  # last: what has it is done
        done.append(entry.name)
        print(
            f"{entry.name}: {FOLDS} rsum {record.figures[f'{FOLDS}/rsum']:.1f}; trained {span(record.train_seconds)}, "
            f"scored {span(record.score_seconds)}",
            file=sys.stderr,
        )
    over = {*done, *(told.partition(":")[0] for told in failed)}
    return SeriesEnd(tuple(done), tuple(failed), tuple(e.name for e in entries if e.name not in over))


def _run(
    entry: SeriesEntry, folder: Path, splits: Splits, device: str, until: float | None, fold: int
) -> TrialRecord | None:
    """One trial to its record; None where the time did not suffice, or a signal came."""
    trial, place = entry.trial, pick_device(device)
    before, begun = _memory_from_here(place), len(starts(trial.run))
    outcome = train(trial.recipe, trial.run, Device(device), splits, until=until)
    if not outcome.finished:
        return None
    trained = starts(trial.run)
    # Of a run that was trained before, and only now found the time to be judged, nothing is known.
    just_now = any(start["to_step"] > start["from_step"] for start in trained[begun:])
    train_bytes = _most_memory(place, before) if just_now else None
    matcher = Matcher.from_pretrained(trial.run / "best").to(place)
    before = _memory_from_here(place)
    # As validation does.
    dtype = scored_in(trial.recipe.training.precision) if has_kernels(place) else None
    judged = _judge(matcher, entry, splits.test, until, fold, dtype)
    if judged is None:
        return None
    for evaluation in judged.evaluations:
        if evaluation.protocol == FOLDS:
            _compact(evaluation).described(model=entry.name, data=splits.test.name, split="test").save(
                folder / "evaluations"
            )
    lines = [json.loads(line) for line in read_text(trial.run / "metrics.jsonl").splitlines()]
    return TrialRecord(
        recipe=trial.recipe.name,
        variant=trial.variant,
        seed=trial.seed,
        parameters=sum(p.numel() for p in matcher.parameters() if p.requires_grad),
        steps=outcome.position.total,
        train_seconds=sum(start["seconds"] for start in trained),
        encode_seconds=judged.encode_seconds,
        score_seconds=judged.score_seconds,
        pairs=judged.pairs,
        images=len(splits.test),
        sentences=len(splits.test.captions()[0]),
        best_epoch=outcome.position.best_epoch + 1,
        validation=tuple(line["validation"]["rsum"] for line in lines if "validation" in line),
        figures=judged.figures | {k: v for each in judged.evaluations for k, v in each.figures.items()},
        queries=_checksum(splits.test),
        device=hardware(place).get("gpu", hardware(place)["processor"]),
        train_bytes=train_bytes,
        score_bytes=_most_memory(place, before),
        commit=commit(),
        versions=versions(),
        notes=(
            *(note for each in judged.evaluations for note in each.notes),
            *judged.notes,
            *(f"{key} was changed of the recipe" for key in trial.recipe.changed),
        ),
    )


@dataclass(frozen=True)
class _Judged:
    evaluations: tuple[Evaluation, ...]
    figures: dict[str, float]
    encode_seconds: float
    score_seconds: float
    pairs: int
    notes: tuple[str, ...]


def _judge(
    matcher: Matcher, entry: SeriesEntry, test: Collection, until: float | None, fold: int, dtype: torch.dtype | None
) -> _Judged | None:
    """A trained matcher on the test split; None where there is no time for it."""
    texts, owners = test.captions()
    ids = collection_ids(test)
    begun = time.perf_counter()
    images = _encode(matcher, test)
    sentences = encode_sentences(matcher, texts, batch_size=1024)
    encoded = time.perf_counter()
    inside = len(images) // fold * fold
    pairs = len(images) * len(sentences) if entry.whole else int(fold * (owners < inside).sum())
    expected = _seconds_of_a_sample(matcher, images, sentences, dtype) * pairs
    if until is not None and time.monotonic() + expected >= until:
        print(f"{entry.name}: trained; scoring would take about {span(expected)}, for another time", file=sys.stderr)
        return None
    begun_scoring = time.perf_counter()
    source: ScoreSource = MatcherSource(matcher, images, sentences, dtype=dtype)
    if entry.whole:
        scores = score_all(matcher, images, sentences, dtype=dtype, progress="scoring")
        source = MatrixSource(scores)
    evaluations = [] if entry.whole else [evaluate_source(source, owners, FOLDS, *ids, fold=fold)]
    score_seconds = time.perf_counter() - begun_scoring
    figures: dict[str, float] = {}
    notes = rounded(dtype)
    with matcher.inference():
        figures |= matcher.pair_figures(images, sentences, torch.from_numpy(owners))
    if entry.whole:
        evaluations.append(evaluate_source(source, owners, FOLDS, *ids, fold=fold))
        for protocol in WHOLE:
            try:
                evaluations.append(evaluate_source(source, owners, protocol, *ids))
            except DiptychError as error:  # the annotations, or most of COCO's pictures, are not there
                notes.append(str(error))
        try:
            figures |= real_near_misses(matcher, test.first(NEAR_MISSES)).flat()
        except DiptychError as error:  # no caption has a word that can be changed
            notes.append(str(error))
        with written_aside(entry.trial.run / SCORES) as aside, aside.open("wb") as file:
            np.save(file, scores.numpy())
    return _Judged(tuple(evaluations), figures, encoded - begun, score_seconds, pairs, tuple(notes))


def _encode(matcher: Matcher, test: Collection) -> Kept:
    if isinstance(test.features, HeldFeatures):
        return test.features.encode(matcher, test)
    return encode_pictures(matcher, test)


def _seconds_of_a_sample(matcher: Matcher, images: Kept, texts: Kept, dtype: torch.dtype | None) -> float:
    """Seconds that one pair takes, after a first call that is not counted."""
    rows, columns = images[: SAMPLE[0]], texts[: SAMPLE[1]]
    score_all(matcher, rows, columns, dtype=dtype)
    begun = time.perf_counter()
    score_all(matcher, rows, columns, dtype=dtype)
    return (time.perf_counter() - begun) / (len(rows) * len(columns))


def _compact(evaluation: Evaluation) -> Evaluation:
    """The same without its ids, in the smallest integers."""
    kept = {key: values for key, values in evaluation.per_query.items() if not key.endswith("_ids")}
    small = {
        # Twice the largest must fit: ranks are added.
        key: values.astype(np.min_scalar_type(2 * int(values.max()))) if values.dtype.kind in "iu" else values
        for key, values in kept.items()
    }
    return replace(evaluation, per_query=small)


def _checksum(test: Collection) -> str:
    pictures, sentences = collection_ids(test)
    return hashlib.sha256("\n".join([*pictures, "", *sentences]).encode()).hexdigest()


def _memory_from_here(device: torch.device) -> int:
    """Begin counting anew; what is held already."""
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _most_memory(device: torch.device, before: int) -> int | None:
    return torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else None
