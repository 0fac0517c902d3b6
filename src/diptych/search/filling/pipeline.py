"""New entries to whole ones: decoding beside the model, so that neither waits for the other."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch

from diptych.common.errors import DiptychError
from diptych.data.collection import DataProblem
from diptych.data.open_picture import open_with_size
from diptych.encoders.backbones import Extractor, Size
from diptych.search.filling.new_entry import Failed, NewEntry, Outcome
from diptych.search.models.embedder import Embedder, LocalsSource
from diptych.search.stores.store import Entry

MOST_WORKERS = 16
SENTENCES_AT_ONCE = 64
T = TypeVar("T")
R = TypeVar("R")


class LocalsKeeper:
    """Computes the local features of pictures that a re-ranker will want; the model's own where they are the same."""

    def __init__(self, source: LocalsSource, embedder: Embedder) -> None:
        self.shared = source.same(embedder.locals_source)
        self.extractor: Extractor | None = None
        if not self.shared:
            self.extractor = source.load().eval().to(embedder.device)

    @property
    def side(self) -> int:
        """The side of the pictures that it needs."""
        return 0 if self.extractor is None else self.extractor.size


@dataclass(frozen=True)
class _Prepared:
    """Pictures ready for the models, and those that need none."""

    ready: list[tuple[NewEntry, np.ndarray, np.ndarray | None, Size]]
    done: list[Outcome]


def embed_entries(
    entries: Iterable[NewEntry],
    embedder: Embedder,
    keeper: LocalsKeeper | None = None,
    *,
    batch_size: int | None = None,
    workers: int | None = None,
) -> Iterator[list[Outcome]]:
    """Embed entries a batch at a time; every one has its outcome, pictures and sentences each in their order.

    On the CPU each worker takes a batch from the file to the vectors on one core. Elsewhere the workers decode, and
    the device gets one batch after another.
    """
    cores = os.cpu_count() or 1
    workers = min(cores, MOST_WORKERS) if workers is None else workers
    on_cpu = embedder.device.type == "cpu"
    size = batch_size or (4 if on_cpu else 64)
    if size < 1 or workers < 1:
        raise DiptychError("batch size and workers: expected at least 1")
    batches = _batches(entries, size)

    def whole(batch: list[NewEntry]) -> list[Outcome]:
        torch.set_num_threads(max(1, cores // workers))  # a setting of each thread
        return _finish(_prepare(batch, embedder, keeper), embedder, keeper)

    threads = torch.get_num_threads()
    try:
        if on_cpu:
            yield from ahead(whole, batches, workers)
        else:
            for prepared in ahead(lambda batch: _prepare(batch, embedder, keeper), batches, workers):
                yield _finish(prepared, embedder, keeper)
    finally:
        torch.set_num_threads(threads)


def ahead(work: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Results of `work` in the order of the items, computed by threads a little ahead of what is asked for."""
    pool = ThreadPoolExecutor(workers)
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _batches(entries: Iterable[NewEntry], size: int) -> Iterator[list[NewEntry]]:
    """Batches of one kind each."""
    waiting: dict[str, list[NewEntry]] = {"picture": [], "sentence": []}
    most = {"picture": size, "sentence": SENTENCES_AT_ONCE}
    for entry in entries:
        batch = waiting[entry.kind]
        batch.append(entry)
        if len(batch) == most[entry.kind]:
            yield batch
            waiting[entry.kind] = []
    yield from (batch for batch in waiting.values() if batch)


def _prepare(batch: Sequence[NewEntry], embedder: Embedder, keeper: LocalsKeeper | None) -> _Prepared:
    ready: list[tuple[NewEntry, np.ndarray, np.ndarray | None, Size]] = []
    done: list[Outcome] = []
    side = max(embedder.side, 0 if keeper is None else keeper.side)
    for entry in batch:
        try:
            known = entry.known.partition("~")[0]
            entry = entry.with_digest()
            if known and known == entry.stamp.digest.partition("~")[0]:
                done.append(entry)
            elif entry.kind == "sentence":
                ready.append((entry, np.empty(0), None, (0, 0)))
            else:
                assert entry.open is not None  # which pictures always have
                image, size = open_with_size(entry.open, side)
                extra = None if keeper is None or keeper.extractor is None else keeper.extractor.prepare(image)
                ready.append((entry, embedder.prepare(image), extra, size))
        except DiptychError as error:
            done.append(Failed(entry.key, DataProblem(error.where or entry.key, error.what)))
    return _Prepared(ready, done)


def _finish(prepared: _Prepared, embedder: Embedder, keeper: LocalsKeeper | None) -> list[Outcome]:
    ready = prepared.ready
    if not ready:
        return prepared.done
    entries = [entry for entry, _, _, _ in ready]
    locals_: list[np.ndarray] | None = None
    if entries[0].kind == "sentence":
        vectors = embedder.embed_texts([entry.text for entry in entries])
    else:
        sizes = [size for _, _, _, size in ready]
        embedded = embedder.embed_pixels([p for _, p, _, _ in ready], sizes, keeper is not None and keeper.shared)
        vectors, locals_ = embedded.vectors, embedded.locals
        if keeper is not None and keeper.extractor is not None:
            pixels = [extra for _, _, extra, _ in ready if extra is not None]
            with torch.inference_mode():
                extracted = keeper.extractor.extract(pixels, sizes, torch.float32)
            locals_ = [regions.vectors.astype(np.float16) for regions in extracted]
    return [*prepared.done, *(_entry(e, v, locals_, i) for i, (e, v) in enumerate(zip(entries, vectors, strict=True)))]


def _entry(new: NewEntry, vectors: np.ndarray, locals_: list[np.ndarray] | None, row: int) -> Outcome:
    if not np.isfinite(vectors).all():
        return Failed(new.key, DataProblem(new.key, "the model gave no finite vector for it"))
    kept = None if locals_ is None else locals_[row]
    return Entry(new.key, new.kind, vectors, replace(new.stamp, key=new.key), new.text, dict(new.metadata), kept)
