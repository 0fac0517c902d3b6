"""New entries to whole ones: decoding beside the model, so that neither waits for the other."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from diptych.common.errors import DiptychError
from diptych.common.read_ahead import check_sizes, read_ahead
from diptych.data.collection import DataProblem
from diptych.data.open_picture import open_with_size
from diptych.data.photo import Columns
from diptych.data.pictures import DECODED
from diptych.encoders.backbones import Extractor, Size
from diptych.search.filling.describe import own_columns, size_column
from diptych.search.filling.new_entry import Failed, NewEntry, Outcome
from diptych.search.filling.seal import READ, content_of, digest_read
from diptych.search.models.embedder import Embedder, LocalsSource
from diptych.search.stores.store import Entry

SENTENCES_AT_ONCE = 64
# From so many pictures on, making a quick form of the model is worth its time.
MANY = 32


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
class PreparedBatch:
    """Pictures ready for the models, and those that need none; many: they are some of many."""

    ready: list[tuple[NewEntry, np.ndarray, np.ndarray | None, Size]]
    done: list[Outcome]
    many: bool


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
    on_cpu = embedder.device.type == "cpu"
    size = batch_size or usual_batch(embedder)
    workers = check_sizes(size, workers)
    yield from read_ahead(
        enumerate(batches_of(entries, size)),
        lambda batch: prepare_batch(batch[1], embedder, keeper, many=batch[0] * size >= MANY),
        lambda prepared: finish_batch(prepared, embedder, keeper),
        on_cpu=on_cpu,
        workers=workers,
        ahead=2 * workers,
    )


def usual_batch(embedder: Embedder) -> int:
    """Pictures a step, where nobody says."""
    return 4 if embedder.device.type == "cpu" else 64


def batches_of(entries: Iterable[NewEntry], size: int) -> Iterator[list[NewEntry]]:
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


def prepare_batch(
    batch: Sequence[NewEntry], embedder: Embedder, keeper: LocalsKeeper | None, *, many: bool
) -> PreparedBatch:
    """Read and decode a batch of one kind; what cannot be read is an outcome already.

    many: whether it is one of many, for which a quick form of the model is worth making
    """
    ready: list[tuple[NewEntry, np.ndarray, np.ndarray | None, Size]] = []
    done: list[Outcome] = []
    side = max(embedder.side, 0 if keeper is None else keeper.side)
    for entry in batch:
        try:
            known = content_of(entry.known)
            entry = entry.with_digest()
            if known and known == content_of(entry.stamp.digest):
                done.append(_described(entry, own_columns(entry.open, entry.stamp)))
            elif entry.kind == "sentence":
                ready.append((entry, np.empty(0), None, (0, 0)))
            else:
                assert entry.open is not None  # which pictures always have
                facts: Columns = dict(entry.facts)
                with DECODED.holding():  # until it is as small as the models take it
                    image, size = open_with_size(entry.open, side, None if facts else facts.update)
                    extra = None if keeper is None or keeper.extractor is None else keeper.extractor.prepare(image)
                    pixels = embedder.prepare(image)
                    del image
                facts = {"width": size[0], "height": size[1], **size_column(entry.open, entry.stamp), **facts}
                ready.append((_described(entry, facts), pixels, extra, size))
        except DiptychError as error:
            stamp = entry.stamp if entry.stamp.digest else None
            done.append(Failed(entry.key, DataProblem(error.where or entry.key, error.what), stamp))
    return PreparedBatch(ready, done, many)


def _described(entry: NewEntry, facts: Columns) -> NewEntry:
    """The entry with what its picture says of itself; its digest tells that it was asked."""
    if not facts:
        return entry
    return replace(entry, facts=facts, stamp=replace(entry.stamp, digest=digest_read(entry.stamp.digest, READ)))


def finish_batch(prepared: PreparedBatch, embedder: Embedder, keeper: LocalsKeeper | None) -> list[Outcome]:
    """What became of a batch: vectors, and local features where they are kept."""
    ready = prepared.ready
    if not ready:
        return prepared.done
    entries = [entry for entry, _, _, _ in ready]
    locals_: list[np.ndarray] | None = None
    if entries[0].kind == "sentence":
        vectors = embedder.embed_texts([entry.text for entry in entries])
    else:
        sizes = [size for _, _, _, size in ready]
        if prepared.many:
            embedder.hasten_pictures()
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
        return Failed(new.key, DataProblem(new.key, "the model gave no finite vector for it"), new.stamp)
    kept = None if locals_ is None else locals_[row]
    columns = {**new.facts, **new.metadata}
    return Entry(new.key, new.kind, vectors, replace(new.stamp, key=new.key), new.text, columns, kept)
