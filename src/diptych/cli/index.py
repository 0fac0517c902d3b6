"""`diptych index`."""

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from diptych.cli.options import DeviceOption
from diptych.common.device import device_of_process
from diptych.common.errors import DiptychError


def command(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Folders and files: pictures, text, tars, parquet.")
    ] = None,
    index: Annotated[
        str | None,
        typer.Option("--index", "--store", help="A file, or milvus://host:port/name; by default one for each user."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="`default`, a run, a matcher's folder, or a CLIP or SigLIP model; of a new index only."),
    ] = None,
    what: Annotated[Literal["pictures", "sentences", "both"], typer.Option(help="What to index.")] = "pictures",
    exclude: Annotated[list[str] | None, typer.Option(help="Leave out names or paths like this; repeatable.")] = None,
    hidden: Annotated[bool, typer.Option("--hidden", help="Also hidden files and folders.")] = False,
    archives: Annotated[bool, typer.Option("--archives", help="Also tars and parquet files inside folders.")] = False,
    metadata: Annotated[
        Path | None, typer.Option(help="A csv, jsonl or parquet file with a column of paths and columns to filter by.")
    ] = None,
    keep_locals: Annotated[
        str | None, typer.Option(help="A re-ranking model: keep what it needs of each picture; of a new index only.")
    ] = None,
    import_from: Annotated[
        Path | None, typer.Option("--import", help="Add the vectors of a .npz or .parquet file.")
    ] = None,
    export_to: Annotated[
        Path | None, typer.Option("--export", help="Write all vectors to a .npz or .parquet file.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Read all of it and tell which entries are damaged; --delete removes them.")
    ] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Also delete where all or most of a folder is gone, without asking.")
    ] = False,
    device: DeviceOption = "auto",
    batch_size: Annotated[int | None, typer.Option(min=1, help="Pictures a step.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads that decode; one a core by default.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 if anything cannot be read.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False,
) -> None:
    """Index pictures and sentences, or bring an index in step with its folders; after a kill it goes on."""
    from diptych.search.filling import bulk
    from diptych.search.stores.address import default_index

    if not paths and import_from is None and export_to is None and not check:
        raise DiptychError("expected a folder or file to index")
    # Large pictures are told where they are too large; a warning for each of the others helps nobody.
    warnings.filterwarnings("ignore", category=_bomb_warning())
    address: str | Path = default_index() if index is None else index
    if bulk.world_size() > 1:
        device = device_of_process() if device == "auto" else device
        if not bulk.is_first():
            _take_part(device)
            return
    opened = _open(address, model, keep_locals, device, bool(paths), import_from)
    with opened:
        if check:
            _check(opened, delete, as_json)
            if not paths and import_from is None and export_to is None:
                return
        outcome: dict[str, Any] = {"index": opened.store.address, "model": opened.model}
        if import_from is not None:
            outcome["imported"] = opened.import_(import_from)
            opened.prepare()
        problems: list[str] = []
        missing: list[str] = []
        if paths:
            options: dict[str, Any] = {"what": what, "exclude": exclude or [], "hidden": hidden, "archives": archives}
            options |= {"metadata": metadata, "batch_size": batch_size, "workers": workers, "delete": delete}
            problems, missing = _sync(opened, paths, outcome, options)
        if export_to is not None:
            outcome["exported"] = opened.export(export_to)
        outcome["entries"] = opened.count()
        outcome["problems"], outcome["missing"] = problems, missing
    _tell(outcome, as_json)
    for folder in missing:
        print(f"{folder}; nothing of it was deleted. If they are gone for good, add --delete", file=sys.stderr)
    if missing or (problems and strict):
        raise typer.Exit(1)


def _open(
    address: str | Path,
    model: str | None,
    keep_locals: str | None,
    device: str,
    filled: bool,
    source: Path | None,
) -> Any:
    """The index, made where there is none and something is to be put into it.

    filled: files are to be indexed
    source: vectors from elsewhere, which need no model here
    """
    from diptych.search.index import Index
    from diptych.search.open_or_create import open_or_create

    if not filled and source is None:
        return Index.open(address, device=device)
    if filled or source is None or model is not None or keep_locals is not None:
        return open_or_create(address, model, keep_locals=keep_locals, device=device)
    try:
        return Index.open(address, device=device)
    except DiptychError:
        if "://" not in str(address) and Path(address).exists():
            raise
    from diptych.search.filling.exchange import layout_of_file

    return Index.create(address, None, layout=layout_of_file(source), device=device)


def _check(opened: Any, delete: bool, as_json: bool) -> None:
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


def _sync(
    opened: Any, paths: list[Path], outcome: dict[str, Any], options: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """Bring the index in step; what could not be read, and the folders that lost too much to go on unasked."""
    from diptych.search.filling import bulk

    if bulk.world_size() > 1:
        with bulk.together():
            sizes = {name: options[name] for name in ("batch_size", "workers")}
            settings = {"model": opened.model, "locals": opened.kept_locals, **sizes}
            embed = bulk.hand_out(opened.local_embed(**sizes), settings)
            report = opened.sync(*paths, **options, embed=embed)
    else:
        report = opened.sync(*paths, **options)
    missing = [str(folder) for folder in report.missing]
    names = ("added", "changed", "moved", "deleted", "unchanged")
    outcome |= {name: getattr(report, name) for name in names}
    outcome["seconds"] = round(report.seconds, 3)
    if missing and sys.stdin.isatty() and _agreed(missing):
        outcome["deleted"] += opened.sync(*paths, **{**options, "delete": True}).deleted
        missing = []
    return [str(problem) for problem in report.problems], missing


def _agreed(missing: list[str]) -> bool:
    """Whether someone at the terminal says that what is gone is gone for good."""
    for folder in missing:
        print(folder, file=sys.stderr)
    return typer.confirm("Delete them from the index?", err=True)


def _take_part(device: str) -> None:
    """The part of a process that only embeds."""
    from diptych.search.filling import bulk
    from diptych.search.filling.sync import Embed

    def load(settings: dict[str, Any]) -> Embed:
        from functools import partial

        from diptych.search.filling.pipeline import LocalsKeeper, embed_entries
        from diptych.search.models.embedder import load_embedder

        embedder = load_embedder(settings["model"], device)
        keeper = None if settings["locals"] is None else LocalsKeeper(settings["locals"], embedder)
        sizes = {name: settings[name] for name in ("batch_size", "workers")}
        return partial(embed_entries, embedder=embedder, keeper=keeper, **sizes)

    with bulk.together():
        bulk.take_part(load)


def _bomb_warning() -> type[Warning]:
    from PIL import Image

    return Image.DecompressionBombWarning


def _tell(outcome: dict[str, Any], as_json: bool, most: int = 20) -> None:
    problems = outcome["problems"]
    for problem in problems[:most]:
        print(problem, file=sys.stderr)
    if len(problems) > most:
        print(f"… and {len(problems) - most} more", file=sys.stderr)
    if problems:
        things = "1 thing" if len(problems) == 1 else f"{len(problems)} things"
        print(f"note: {things} could not be read; all others are indexed", file=sys.stderr)
    if as_json:
        print(json.dumps(outcome, ensure_ascii=False))
        return
    done = ", ".join(
        f"{outcome[name]:,} {name}"
        for name in ("imported", "added", "changed", "moved", "deleted", "unchanged", "exported")
        if outcome.get(name)
    )
    took = f" in {outcome['seconds']:.1f} s" if "seconds" in outcome else ""
    print(f"{outcome['index']}: {done or 'nothing to do'}{took}; {outcome['entries']:,} entries")
