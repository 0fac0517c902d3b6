"""Sources to parquet parts: planned once, embedded by one process or by Ray, gone on with where it stopped."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diptych.common.errors import DiptychError
from diptych.common.model_place import canonical_name
from diptych.common.progress import progress_bar
from diptych.data.collection import DataProblem
from diptych.search.filling.embed_plan import (
    USUAL_PART,
    EmbedPlan,
    PlanPart,
    cut_into_parts,
    list_sources,
    new_plan,
    read_plan,
)
from diptych.search.filling.embed_ray import RayEngine, RayPool
from diptych.search.filling.parts_folder import PartsFolder
from diptych.search.filling.skipped import Skipped, skipped_kinds
from diptych.search.filling.walk import Choice
from diptych.search.models.fingerprint import Fingerprint
from diptych.search.models.index_model import DEFAULT_MODEL, locals_of

if TYPE_CHECKING:  # these need torch, which a run that finds nothing to do does not
    from diptych.search.filling.embed_engine import EmbedEngine, Speed
    from diptych.search.models.embedder import Embedder

# All kinds of files that pictures are in.
EVERYTHING = Choice(archives=True)


@dataclass(frozen=True)
class EmbedReport:
    """What a run did.

    parts: of the whole plan; before: how many were there already
    entries: that were embedded now; bad: what cannot be read, in all parts
    problems, skipped: what the sources hold that is not in the plan
    speed: None where nothing was embedded
    """

    folder: str
    model: str
    parts: int
    before: int
    entries: int
    bad: int
    seconds: float
    speed: "Speed | None"
    problems: tuple[DataProblem, ...]
    skipped: tuple[Skipped, ...]


def embed(
    sources: Sequence[str | Path],
    out: str | Path,
    model: str = DEFAULT_MODEL,
    *,
    choice: Choice = EVERYTHING,
    part: int = USUAL_PART,
    keep_locals: str | None = None,
    device: str | None = None,
    batch_size: int | None = None,
    threads: int | None = None,
    pool: RayPool | None = None,
    retry: bool = False,
) -> EmbedReport:
    """Embed what folders, tars, parquet files and URLs hold, into parts in the folder `out`; only those not there yet.

    choice: which files of folders
    part: pictures, or rows of a parquet file, of a part
    keep_locals: a re-ranking model; what it needs of each picture is kept, too
    pool: Ray embeds, where it is given; else this process does
    retry: make parts again of which something could not be read
    """
    started = time.monotonic()
    folder = PartsFolder(out)
    listing = list_sources(sources, choice, folder)
    if not listing.files:
        raise DiptychError("nothing of what is there can be embedded", where=", ".join(map(str, sources)))
    parts = cut_into_parts(listing.files, part)
    options = {
        "what": choice.what,
        "exclude": list(choice.exclude),
        "hidden": choice.hidden,
        "part": part,
        "keep-locals": None if keep_locals is None else canonical_name(keep_locals),
    }
    embedder: Embedder | None = None
    plan = read_plan(folder)
    if plan is not None:
        plan.check(canonical_name(model), options, parts, folder.address)
    else:
        embedder, plan = _begin(folder, model, keep_locals, device, options, parts)
    folder.sweep()  # only now is it known to be a folder of parts
    there = folder.names()
    missing = [p for p in plan.parts if p.name not in there or (retry and p.bad in there)]
    entries, speed = 0, None
    if missing:
        engine = _engine(plan, folder, pool, embedder, device, batch_size, threads)
        told = {part.number: part.bad for part in missing if part.bad in there}
        entries = _run(engine, missing, len(plan.parts), folder, told)
        speed = engine.speed()
        folder.sweep()
    return EmbedReport(
        folder.address,
        plan.model.name,
        len(plan.parts),
        len(plan.parts) - len(missing),
        entries,
        _count_bad(folder, plan.parts),
        time.monotonic() - started,
        speed,
        tuple(listing.problems),
        skipped_kinds(listing.skipped),
    )


def _begin(
    folder: PartsFolder,
    model: str,
    keep_locals: str | None,
    device: str | None,
    options: dict[str, Any],
    parts: Sequence[PlanPart],
) -> "tuple[Embedder, EmbedPlan]":
    """A new plan, written down, and the model, which is loaded to know it again."""
    from diptych.search.models.embedder import load_embedder

    if not folder.is_new():
        raise DiptychError("is not empty and holds no plan; expected a new folder for the parts", where=folder.address)
    embedder = load_embedder(model, device)
    kept = None if keep_locals is None else locals_of(keep_locals)
    plan = new_plan(Fingerprint.of(embedder, kept), options, parts)
    plan.write(folder)
    return embedder, plan


def _engine(
    plan: EmbedPlan,
    folder: PartsFolder,
    pool: RayPool | None,
    embedder: "Embedder | None",
    device: str | None,
    batch_size: int | None,
    threads: int | None,
) -> "EmbedEngine":
    if pool is not None:
        return RayEngine(plan, folder, pool, batch_size, threads)
    from diptych.search.filling.embed_engine import PlainEngine
    from diptych.search.filling.embed_parts import PartsEmbedder

    if embedder is None:
        return PlainEngine(PartsEmbedder.load(plan, folder, device, batch_size=batch_size, threads=threads))
    return PlainEngine(PartsEmbedder(plan, folder, embedder, batch_size=batch_size, threads=threads))


def _run(
    engine: "EmbedEngine", parts: Sequence[PlanPart], all_parts: int, folder: PartsFolder, told: dict[int, str]
) -> int:
    """Embed parts under a progress bar; how many entries they hold.

    told: by a part's number the list of what could not be read before, which goes once the part is there without fault
    """
    entries = bad = 0
    done_parts = all_parts - len(parts)
    with progress_bar("items") as bar:
        task = bar.add_task("embedding", total=_items(parts), note=f"part {done_parts} of {all_parts}")
        for done in engine.embed(parts, lambda items: bar.update(task, advance=items)):
            entries, bad, done_parts = entries + done.entries, bad + done.bad, done_parts + 1
            if not done.bad and done.number in told:
                folder.remove(told[done.number])
            note = f"part {done_parts:,} of {all_parts:,}" + (f", {bad:,} unreadable" if bad else "")
            bar.update(task, note=note)
    return entries


def _items(parts: Sequence[PlanPart]) -> int | None:
    """How many items parts have; None where that shows only when they are read."""
    sizes = [part.items for part in parts]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _count_bad(folder: PartsFolder, parts: Sequence[PlanPart]) -> int:
    """What of all parts cannot be read."""
    there, count = folder.names(), 0
    for part in parts:
        if part.bad in there:
            with folder.reading(part.bad) as path:
                count += path.read_bytes().count(b"\n")
    return count
