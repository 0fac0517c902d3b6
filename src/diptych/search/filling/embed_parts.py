"""Parts of a plan, embedded with this process's model: read ahead over their borders, each written whole."""

import json
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TypeVar

from diptych.common.read_ahead import check_sizes, in_order, read_ahead
from diptych.data.collection import DataProblem
from diptych.search.filling.embed_plan import EmbedPlan, PlanPart
from diptych.search.filling.embed_read import OpenedPart
from diptych.search.filling.entry_table import EntryTable
from diptych.search.filling.new_entry import Failed, NewEntry, Outcome
from diptych.search.filling.parts_folder import PartsFolder
from diptych.search.filling.pipeline import (
    LocalsKeeper,
    PreparedBatch,
    batches_of,
    finish_batch,
    prepare_batch,
    usual_batch,
)
from diptych.search.filling.seal import digest_with
from diptych.search.models.embedder import Embedder, load_embedder
from diptych.search.stores.store import Entry, Value

# Rows that are written at once.
ROWS = 256
# The model alone is measured for so many seconds.
MEASURED = 1.0
T = TypeVar("T")


@dataclass(frozen=True)
class PartDone:
    """A part that was written: how many entries it holds, and how many could not be read."""

    number: int
    entries: int
    bad: int


@dataclass(frozen=True)
class _BegunPart:
    """A part that is read, until it is written; the next ones are begun meanwhile.

    bad: what cannot be read; given: columns that were given for pictures, by their keys
    """

    source: OpenedPart
    bad: list[DataProblem] = field(default_factory=list)
    given: dict[str, dict[str, Value]] = field(default_factory=dict)


class PartsEmbedder:
    """A plan's model at work on its parts.

    Batches never hold items of two parts, so that a part is the same whichever parts were missing before it.

    threads: that read and decode; on the CPU each takes its batches through the model, too
    cores: how many of the machine's cores are meant for this, by default all
    """

    def __init__(
        self,
        plan: EmbedPlan,
        folder: PartsFolder,
        embedder: Embedder,
        *,
        batch_size: int | None = None,
        threads: int | None = None,
        cores: int | None = None,
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.embedder = embedder
        source = plan.model.locals_source
        self.keeper = None if source is None else LocalsKeeper(source, embedder)
        self.size = batch_size or usual_batch(embedder)
        self.threads = check_sizes(self.size, threads)
        self.cores = cores or os.cpu_count() or 1
        self._sample: PreparedBatch | None = None
        self._begun: dict[int, _BegunPart] = {}

    @classmethod
    def load(
        cls,
        plan: EmbedPlan,
        folder: PartsFolder,
        device: str | None,
        *,
        batch_size: int | None = None,
        threads: int | None = None,
        cores: int | None = None,
    ) -> "PartsEmbedder":
        """The same with the plan's model, loaded and seen to be what it was when the plan was made."""
        embedder = load_embedder(plan.model.name, device)
        plan.model.check(embedder, folder.address)
        return cls(plan, folder, embedder, batch_size=batch_size, threads=threads, cores=cores)

    def embed(
        self, parts: Sequence[PlanPart], advance: Callable[[int], None] = lambda items: None
    ) -> Iterator[PartDone]:
        """Embed parts and write them, one after the other; `advance` is told of items as they are done."""
        outcomes = self._through(self._batches(parts), self._prepare)
        try:
            for part in parts:
                yield self._write(part, _until_end(outcomes, advance))
        finally:
            outcomes.close()
            for begun in self._begun.values():
                begun.source.close()
            self._begun.clear()

    def model_rate(self) -> float | None:
        """Pictures a second of the model alone, on a batch that was decoded before; None where there was none."""
        sample = self._sample
        if sample is None:
            return None
        count, started = 0, time.perf_counter()
        while (seconds := time.perf_counter() - started) < MEASURED:
            count += sum(map(len, self._through([sample] * 2 * self.threads, lambda prepared: prepared)))
        return count / seconds

    def _through(
        self, batches: Iterable[T], prepare: Callable[[T], PreparedBatch]
    ) -> Generator[list[Outcome], None, None]:
        """Batches, prepared by threads, through the model."""
        return read_ahead(
            batches,
            prepare,
            lambda prepared: finish_batch(prepared, self.embedder, self.keeper),
            on_cpu=self.embedder.device.type == "cpu",
            workers=self.threads,
            ahead=2 * self.threads,
            cores=self.cores,
        )

    def _batches(self, parts: Sequence[PlanPart]) -> Iterator[list[NewEntry]]:
        """Batches of one part each, and an empty one at the end of a part."""
        # Files of an object store are fetched one part ahead.
        with closing(in_order(OpenedPart, parts, 1, 1)) as sources:
            for source in sources:
                begun = self._begun[source.part.number] = _BegunPart(source)
                yield from batches_of(self._entries(begun), self.size)
                yield []

    def _entries(self, begun: _BegunPart) -> Iterator[NewEntry]:
        for piece in begun.source.pieces(self.plan.what):
            if isinstance(piece, DataProblem):
                begun.bad.append(piece)
                continue
            if piece.metadata and piece.kind == "picture":
                begun.given[piece.key] = piece.metadata
            yield piece

    def _prepare(self, batch: Sequence[NewEntry]) -> PreparedBatch:
        # Many, whatever is left of them: the same model then makes a part again to the same bytes.
        prepared = prepare_batch(batch, self.embedder, self.keeper, many=True)
        known = 0 if self._sample is None else len(self._sample.ready)
        if batch and batch[0].kind == "picture" and len(prepared.ready) > known:
            self._sample = replace(prepared, done=[])
        return prepared

    def _write(self, part: PlanPart, outcomes: Iterator[list[Outcome]]) -> PartDone:
        """Write a part, and what of it cannot be read before it takes its name."""
        about = {"model": self.plan.model.name, "plan": self.plan.id, "part": part.number}
        layout, locals_ = self.plan.model.layout, bool(self.plan.model.locals)
        count, waiting, failed = 0, list[Entry](), list[DataProblem]()
        with self.folder.writing(part.name) as aside:
            with EntryTable(aside, layout, about, locals_) as table:
                for outcome in (outcome for some in outcomes for outcome in some):
                    if isinstance(outcome, Failed):
                        failed.append(DataProblem(outcome.key, outcome.problem.what))
                    elif isinstance(outcome, Entry):
                        waiting.append(_sealed(outcome, self._begun[part.number].given))
                    if len(waiting) == ROWS:
                        table.write(waiting)
                        count, waiting = count + ROWS, []
                table.write(waiting)
                count += len(waiting)
            begun = self._begun.pop(part.number)
            source, bad = begun.source, [*begun.bad, *failed]
            source.close()
            self._tell(part, [DataProblem(source.told(p.where), source.told(p.what)) for p in bad])
        return PartDone(part.number, count, len(bad))

    def _tell(self, part: PlanPart, bad: Sequence[DataProblem]) -> None:
        if not bad:
            return
        lines = [json.dumps({"key": p.where, "reason": p.what}, ensure_ascii=False) for p in bad]
        with self.folder.writing(part.bad) as aside:
            aside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _sealed(entry: Entry, given: dict[str, dict[str, Value]]) -> Entry:
    """The entry with a digest that tells which columns were given for it, as an index keeps it."""
    if entry.kind != "picture":
        return entry
    digest = digest_with(entry.stamp.digest, given.get(entry.key))
    return replace(entry, stamp=replace(entry.stamp, digest=digest))


def _until_end(outcomes: Iterator[list[Outcome]], advance: Callable[[int], None]) -> Iterator[list[Outcome]]:
    """The outcomes of one part: every batch has some, but for the empty one that stands at the part's end."""
    for some in outcomes:
        if not some:
            return
        advance(len(some))
        yield some
    raise RuntimeError("a part has no end")
