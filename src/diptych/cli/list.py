"""`diptych list`."""

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from diptych.cli.completion import complete_column
from diptych.cli.config_file import ConfigOption
from diptych.cli.options import SHOWING, FilterOption, IndexOption, NullOption, PathOption, PathsOption
from diptych.common.errors import DiptychError, nearest

if TYPE_CHECKING:
    from diptych.search.stores.store import Record, Store

# What every entry has; all others are metadata.
OWN = ("path", "kind", "date", "size", "text")


def command(
    pattern: Annotated[
        list[str] | None, typer.Argument(metavar="GLOB ...", help="Only paths like one of these.")
    ] = None,
    filter: FilterOption = None,
    path: PathOption = None,
    what: Annotated[Literal["pictures", "sentences", "both"], typer.Option(help="What to list.")] = "both",
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Most entries.")] = None,
    index: IndexOption = None,
    config: ConfigOption = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=complete_column,
            rich_help_panel=SHOWING,
            help="Columns, repeatable or with commas between: path, kind, date, size, text, or any of the index's own.",
        ),
    ] = None,
    paths: PathsOption = False,
    null: NullOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", rich_help_panel=SHOWING, help="Print a JSON object a line, with all columns.")
    ] = False,
) -> None:
    """List what an index holds, in the order of the paths, with tabs between the columns.

    The exit status is 1 where nothing fits.
    """
    from diptych.cli.own_index import named_or_own
    from diptych.search.asking.columns import check_columns
    from diptych.search.asking.query import parse_filter, path_filter
    from diptych.search.stores.address import open_store
    from diptych.search.stores.keys import file_of
    from diptych.search.stores.store import Condition

    where = [*(parse_filter(text) for text in filter or []), *(path_filter(text) for text in path or [])]
    if what != "both":
        where.append(Condition("kind", "=", what.removesuffix("s")))
    store = open_store(named_or_own(index))
    try:
        check_columns(store, where)
        names = _names(columns, store)
        count, file = 0, ""
        for record in islice(_records(store, where, [path_filter(text) for text in pattern or []]), limit):
            count += 1
            if as_json:
                print(json.dumps(_told(record), ensure_ascii=False))
            elif paths or null:
                # A video's frames and a file's sentences follow each other: their file is named once.
                if file_of(record.key) != file:
                    file = file_of(record.key)
                    print(file, end="\0" if null else "\n")
            else:
                print("\t".join(_cell(record, name) for name in names))
    finally:
        store.close()
    if not count:
        print("nothing found", file=sys.stderr)
        raise typer.Exit(1)


def _records(store: "Store", where: list[Any], patterns: list[Any]) -> Iterator["Record"]:
    """Entries that fit all of `where` and, where there are any, one of the patterns, in the order of their paths."""
    from heapq import merge

    if not patterns:
        yield from store.records(where)
        return
    last = None
    for record in merge(*(store.records([*where, one]) for one in patterns), key=lambda record: record.key):
        if record.key != last:
            yield record
        last = record.key


def _names(columns: list[str] | None, store: "Store") -> list[str]:
    from diptych.search.asking.columns import ALWAYS

    names = [name.strip() for text in columns or ["path"] for name in text.split(",") if name.strip()]
    for name in names:
        if name not in (*OWN, *ALWAYS) and not store.has_column(name):
            hint = nearest(name, sorted({*OWN, *ALWAYS, *store.columns()}))
            raise DiptychError(f"column {name!r}: no entry has it; {hint}", where="--columns")
    return names


def _told(record: "Record") -> dict[str, Any]:
    own = {name: _value(record, name) for name in OWN if name != "text" or record.text}
    return {**own, "metadata": record.metadata} if record.metadata else own


def _value(record: "Record", name: str) -> Any:
    if name == "date":
        taken = record.metadata.get("taken")
        if isinstance(taken, str):
            return taken
        return datetime.fromtimestamp(record.stamp.changed / 1e9).astimezone().isoformat(timespec="seconds")
    own = {"path": record.key, "kind": record.kind, "size": record.stamp.size, "text": record.text}
    return own[name] if name in own else record.metadata.get(name, "")


def _cell(record: "Record", name: str) -> str:
    """A value that stays in its column."""
    return " ".join(str(_value(record, name)).split()) if name != "path" else record.key
