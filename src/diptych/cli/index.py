"""`diptych index`."""

import json
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from diptych.cli.completion import complete_index, complete_model
from diptych.cli.config_file import ConfigOption
from diptych.cli.options import DeviceOption
from diptych.common.device import device_of_process
from diptych.common.errors import DiptychError

if TYPE_CHECKING:
    from diptych.cli.filling import Wanted
    from diptych.search.filling.sync import SyncReport
    from diptych.search.in_step import Effort
    from diptych.search.index import Index
    from diptych.search.stores.settings import Approximation

CHANGES = ("added", "changed", "moved", "deleted")
VECTORS = "Vectors in and out, and damage"
MANY = "Hundreds of thousands of vectors"


def command(
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders and files: pictures, text, tars, parquet; without any, all that the index was filled from."
        ),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            "--index",
            "--store",
            autocompletion=complete_index,
            help="A file, milvus://host:port/name or qdrant://host:port/name; by default one for each user.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_model,
            help="`default`, a run, a matcher's folder, or a CLIP or SigLIP model; of a new index only.",
        ),
    ] = None,
    what: Annotated[Literal["pictures", "sentences", "both"], typer.Option(help="What to index.")] = "pictures",
    exclude: Annotated[list[str] | None, typer.Option(help="Leave out names or paths like this; repeatable.")] = None,
    hidden: Annotated[bool, typer.Option("--hidden/--no-hidden", help="Also hidden files and folders.")] = False,
    archives: Annotated[
        bool, typer.Option("--archives/--no-archives", help="Also tars and parquet files inside folders.")
    ] = False,
    metadata: Annotated[
        Path | None, typer.Option(help="A csv, jsonl or parquet file with a column of paths and columns to filter by.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on: bring the index in step whenever files change, until Ctrl-C.")
    ] = False,
    keep_locals: Annotated[
        str | None, typer.Option(help="A re-ranking model: keep what it needs of each picture; of a new index only.")
    ] = None,
    import_from: Annotated[
        str | None,
        typer.Option(
            "--import",
            rich_help_panel=VECTORS,
            help="Add the vectors of a .npz or .parquet file, or of a folder that `diptych embed` wrote.",
        ),
    ] = None,
    export_to: Annotated[
        Path | None,
        typer.Option("--export", rich_help_panel=VECTORS, help="Write all vectors to a .npz or .parquet file."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            rich_help_panel=VECTORS,
            help="Read all of it and tell which entries are damaged; --delete removes them.",
        ),
    ] = False,
    approximate: Annotated[
        Literal["ivf", "hnsw", "pq"] | None,
        typer.Option(
            rich_help_panel=MANY, help="The kind of approximate index beyond 200,000 vectors; remembered by the index."
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=MANY,
            help="Memory for preparing and searching, as 500MB; 1GiB by default; remembered by the index.",
        ),
    ] = None,
    text_in_pictures: Annotated[
        bool | None,
        typer.Option(help="Read what is written in pictures, to find them by it; remembered by the index."),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Also delete where all or most of a folder is gone, without asking.")
    ] = False,
    retry: Annotated[
        bool,
        typer.Option("--retry", help="Try pictures again that could not be decoded, though they are as they were."),
    ] = False,
    device: DeviceOption = "auto",
    batch_size: Annotated[int | None, typer.Option(min=1, help="Pictures a step.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads that decode; one a core by default.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 if anything cannot be read.")] = False,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False,
) -> None:
    """Index pictures and sentences, or bring an index in step with its folders; after a kill it goes on."""
    from diptych.cli.filling import Wanted, take_part
    from diptych.search.filling import bulk
    from diptych.search.in_step import Effort
    from diptych.search.stores.address import default_index

    syncs = bool(paths) or not (import_from or export_to or check)
    if watch and not syncs:
        raise DiptychError("--watch: watches folders, beside nothing else; leave out --import, --export and --check")
    # Large pictures are told where they are too large; a warning for each of the others helps nobody.
    warnings.filterwarnings("ignore", category=_bomb_warning())
    warnings.filterwarnings("ignore", category=UserWarning, module="PIL")  # broken EXIF blocks say nothing
    address: str | Path = default_index() if index is None else index
    if bulk.world_size() > 1:
        if watch:
            raise DiptychError("--watch: is for one process; several embed what is there once")
        device = device_of_process() if device == "auto" else device
        if not bulk.is_first():
            take_part(device)
            return
    sources = {name: ctx.get_parameter_source(name) for name in ("what", "exclude", "hidden", "archives", "metadata")}
    given = frozenset(name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE")
    wanted = Wanted(tuple(paths or ()), what, tuple(exclude or ()), hidden, archives, metadata, given)
    effort = Effort(batch_size, workers, None, delete, retry, text_in_pictures)
    report: SyncReport | None = None
    with _open(address, model, keep_locals, device, bool(paths), import_from) as opened, _ended(watch):
        if approximate is not None or memory is not None:
            _settle(opened, approximate, memory)
        if check:
            _check(opened, delete, as_json)
            if not paths and import_from is None and export_to is None:
                return
        outcome: dict[str, Any] = {"index": opened.store.address, "model": opened.model}
        if import_from is not None:
            outcome |= {"imported": opened.import_(import_from), "model": opened.model}
            opened.prepare()
        report = _sync(opened, wanted, effort, not watch) if syncs else None
        if approximate is not None or memory is not None:
            opened.prepare()
        if export_to is not None:
            outcome["exported"] = opened.export(export_to)
        _tell(outcome, opened, report, as_json)
        if watch and report is not None:
            _watch(opened, wanted, effort, as_json, report)
    if report is not None and _has_failed(report, strict):
        raise typer.Exit(1)


def _open(
    address: str | Path,
    model: str | None,
    keep_locals: str | None,
    device: str,
    filled: bool,
    source: str | None,
) -> "Index":
    """The index, made where there is none and something is to be put into it.

    filled: files are named that are to be indexed
    source: vectors from elsewhere, which need no model here
    """
    from diptych.search.index import Index
    from diptych.search.open_or_create import open_or_create, open_to_import

    named = model is not None or keep_locals is not None
    if not filled and source is None:
        if "://" not in str(address) and not Path(address).exists():
            raise DiptychError("no such index; name a folder to make one: `diptych index FOLDER`", where=address)
        if not named:
            return Index.open(address, device=device)
    if filled or source is None or named:
        return open_or_create(address, model, keep_locals=keep_locals, device=device)
    return open_to_import(address, source, device=device)


def _settle(opened: "Index", kind: "Approximation | None", memory: str | None) -> None:
    """Have the index remember how its vectors are to be prepared and searched."""
    from diptych.matchers.bounded.memory import read_bytes
    from diptych.search.stores.settings import VectorSettings

    if "://" in opened.store.address:
        raise DiptychError(
            "--approximate and --memory are for an index in a file; a server has settings of its own",
            where=opened.store.address,
        )
    settings = VectorSettings.of(opened.store.properties)
    settings = replace(
        settings, kind=kind or settings.kind, memory=settings.memory if memory is None else read_bytes(memory)
    )
    opened.store.set_properties(settings.properties())


def _check(opened: "Index", delete: bool, as_json: bool) -> None:
    """Tell what is damaged; an exit with status 1 where it stays so."""
    count = opened.count()
    damaged = opened.check(delete=delete)
    for key in damaged:
        print(f"{key}: not as it was written", file=sys.stderr)
    if as_json:
        print(json.dumps({"index": opened.store.address, "checked": count, "damaged": damaged}, ensure_ascii=False))
    elif damaged:
        print(f"{opened.store.address}: {len(damaged):,} of {count:,} entries are damaged")
    else:
        print(f"{opened.store.address}: all {count:,} entries are as they were written")
    if damaged and delete:
        print("they are deleted; index their folders again", file=sys.stderr)
    elif damaged:
        print("--check --delete removes them, so that indexing their folders makes them again", file=sys.stderr)
        raise typer.Exit(1)


def _sync(opened: "Index", wanted: "Wanted", effort: "Effort", ask: bool) -> "SyncReport":
    """Bring the index in step; whoever is there is asked about folders that lost too much to go on unasked."""
    from diptych.cli.filling import bring_in_step, embedding_together

    with embedding_together(opened, effort) as together:
        report = bring_in_step(opened, wanted, together)
    if report.missing and ask and sys.stdin.isatty() and _agreed([str(folder) for folder in report.missing]):
        again = bring_in_step(opened, wanted, replace(effort, delete=True))
        report = replace(report, deleted=report.deleted + again.deleted, missing=())
    return report


def _has_failed(report: "SyncReport", strict: bool) -> bool:
    """Whether the exit status is 1: folders are gone, nothing could be read, or, where it is strict, not all."""
    return bool(report.missing or report.nothing_read or (strict and (report.problems or report.unread)))


def _agreed(missing: list[str]) -> bool:
    """Whether someone at the terminal says that what is gone is gone for good."""
    for folder in missing:
        print(folder, file=sys.stderr)
    return typer.confirm("Delete them from the index?", err=True)


def _watch(opened: "Index", wanted: "Wanted", effort: "Effort", as_json: bool, first: "SyncReport") -> None:
    from diptych.cli.filling import keep_in_step

    folders = len(wanted.paths) or len(opened.roots)
    print(f"watching {folders} {'folder' if folders == 1 else 'folders'}; Ctrl-C ends it", file=sys.stderr, flush=True)
    before = {str(thing) for thing in (*first.problems, *first.missing)}

    def told(report: "SyncReport | DiptychError") -> None:
        """A line for a run that changed something; what is wrong is told when it is new."""
        nonlocal before
        if isinstance(report, DiptychError):
            print(report, file=sys.stderr, flush=True)
            return
        wrong = {str(thing) for thing in (*report.problems, *report.missing)}
        if any(getattr(report, name) for name in CHANGES) or wrong - before:
            new = [problem for problem in report.problems if str(problem) not in before]
            _tell({"index": opened.store.address, "model": opened.model}, opened, report, as_json, new)
        before |= wrong

    keep_in_step(opened, wanted, effort, told)


@contextmanager
def _ended(watching: bool) -> Iterator[None]:
    """Watching ends well, by Ctrl-C or when the system says so; whatever was embedded is kept."""
    if not watching:
        yield
        return

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    finally:
        signal.signal(signal.SIGTERM, before)


def _bomb_warning() -> type[Warning]:
    from PIL import Image

    return Image.DecompressionBombWarning


def _tell(
    outcome: dict[str, Any],
    opened: "Index",
    report: "SyncReport | None",
    as_json: bool,
    shown: Any = None,
    most: int = 20,
) -> None:
    """What was done, what could not be read (`shown` of it, by default all), and which folders are gone."""
    outcome["problems"], outcome["missing"] = [], []
    if report is not None:
        outcome |= {name: getattr(report, name) for name in (*CHANGES, "unchanged", "described")}
        outcome["seconds"] = round(report.seconds, 3)
        outcome["skipped"] = {kind.ending: kind.count for kind in report.skipped}
        outcome["problems"] = [str(problem) for problem in report.problems]
        outcome["missing"] = [str(folder) for folder in report.missing]
        _tell_problems([str(p) for p in (report.problems if shown is None else shown)], report.remembered, most)
        if shown is None:
            _tell_skipped(report)
    outcome["entries"] = opened.count()
    if as_json:
        print(json.dumps(outcome, ensure_ascii=False), flush=True)
    else:
        names = ("imported", *CHANGES, "unchanged", "described", "exported")
        done = ", ".join(f"{outcome[name]:,} {name}" for name in names if outcome.get(name))
        took = f" in {outcome['seconds']:.1f} s" if "seconds" in outcome else ""
        print(f"{outcome['index']}: {done or 'nothing to do'}{took}; {outcome['entries']:,} entries", flush=True)
    for folder in outcome["missing"]:
        print(f"{folder}; nothing of it was deleted. If they are gone for good, add --delete", file=sys.stderr)


def _tell_skipped(report: "SyncReport") -> None:
    from diptych.search.filling.skipped import skipped_line

    if report.skipped:
        print(f"note: {skipped_line(report.skipped)}", file=sys.stderr)
    if report.nothing_read:
        print("nothing of what is there could be read", file=sys.stderr)


def _tell_problems(problems: list[str], remembered: int, most: int) -> None:
    for problem in problems[:most]:
        print(problem, file=sys.stderr)
    if len(problems) > most:
        print(f"… and {len(problems) - most} more", file=sys.stderr)
    if problems:
        things = "1 thing" if len(problems) == 1 else f"{len(problems)} things"
        again = f" ({remembered:,} not tried again, since nothing changed; --retry does)" if remembered else ""
        print(f"note: {things} could not be read{again}; all others are indexed", file=sys.stderr)
