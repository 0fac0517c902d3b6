"""`diptych remove`."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diptych.cli.config_file import ConfigOption
from diptych.cli.options import FilterOption, IndexOption, PathOption
from diptych.common.errors import DiptychError

if TYPE_CHECKING:
    from diptych.search.index import Index
    from diptych.search.stores.store import Condition

# So many are named before it is asked.
NAMED = 10


def command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH ...", help="Files, folders with all in them, or patterns such as 'old/*.png'."),
    ] = None,
    filter: FilterOption = None,
    path: PathOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    index: IndexOption = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Take pictures and sentences out of an index; their files stay. A folder is no longer kept in step.

    It says what would go, and asks; without a terminal it needs --yes. The exit status is 1 where nothing fits.
    """
    from diptych.cli.own_index import named_or_own
    from diptych.search.asking.columns import check_columns
    from diptych.search.asking.query import parse_filter, path_filter
    from diptych.search.index import Index

    if not (paths or filter or path):
        raise DiptychError("expected paths, a --filter or a --path; all of an index goes with its file")
    where = [*(parse_filter(text) for text in filter or []), *(path_filter(text) for text in path or [])]
    with Index.open(named_or_own(index)) as opened:
        check_columns(opened.store, where)
        keys = sorted(set(_keys(opened, paths, where)))
        # A folder that is named whole is forgotten, so that the next run does not bring it back.
        folders = [] if where else _roots(opened, paths or [])
        outcome: dict[str, Any] = {"index": opened.store.address, "entries": keys, "folders": folders}
        if not keys and not folders:
            print("nothing found", file=sys.stderr)
            raise typer.Exit(1)
        if dry_run or not (as_json and yes):
            _show(outcome, sys.stdout if dry_run and not as_json else sys.stderr)
        if not dry_run:
            if not yes:
                _ask(len(keys))
            from diptych.search.in_step import forget

            for folder in folders:
                forget(opened, folder)
            outcome["removed"] = opened.delete(keys)
            outcome["left"] = opened.count()
            outcome["comes_back"] = _comes_back(opened, keys)
    if as_json:
        print(json.dumps(outcome, ensure_ascii=False))
    elif not dry_run:
        print(f"{outcome['index']}: {outcome['removed']:,} removed; {outcome['left']:,} entries")
    if outcome.get("comes_back"):
        print(
            f"note: {outcome['comes_back']:,} of them are in folders that the index is kept in step with: the next "
            "`diptych index` takes in again what is still on disk, unless --exclude leaves it out",
            file=sys.stderr,
        )


def _keys(opened: "Index", paths: Sequence[str] | None, where: "list[Condition]") -> Iterator[str]:
    """The entries that are meant: those of any path, as far as the filters fit."""
    if paths is None:
        yield from (record.key for record in opened.store.records(where))
        return
    for text in paths:
        for conditions in _meant(opened, text):
            yield from (record.key for record in opened.store.records([*conditions, *where]))


def _meant(opened: "Index", text: str) -> "list[list[Condition]]":
    """A file with its parts and a folder with all in it; else a pattern, where it is one."""
    from diptych.search.asking.query import path_filter
    from diptych.search.stores.keys import patterns_of
    from diptych.search.stores.store import Condition

    absolute = os.path.abspath(os.path.expanduser(text))
    found = [[Condition("path", "matches", pattern)] for pattern in patterns_of(absolute)]
    found.append([Condition("path", "=", text)])  # as keys of what was added from memory
    if any(opened.count(conditions) for conditions in found) or not any(c in text for c in "*?["):
        return found
    return [[path_filter(text)]]


def _roots(opened: "Index", paths: Sequence[str]) -> list[str]:
    """The folders of the index that lie in what is named."""
    named = [os.path.abspath(os.path.expanduser(text)) for text in paths]
    return [
        root for root in opened.roots if any(root == n or root.startswith(n.rstrip(os.sep) + os.sep) for n in named)
    ]


def _show(outcome: dict[str, Any], file: Any) -> None:
    keys = outcome["entries"]
    for key in keys[:NAMED]:
        print(key, file=file)
    if len(keys) > NAMED:
        print(f"… and {len(keys) - NAMED:,} more", file=file)
    for folder in outcome["folders"]:
        print(f"{folder}: would no longer be kept in step", file=file)


def _ask(count: int) -> None:
    entries = "1 entry" if count == 1 else f"{count:,} entries"
    if not sys.stdin.isatty():
        raise DiptychError(f"{entries} would go; add --yes, since nobody can be asked here")
    if not typer.confirm(f"Remove {entries} from the index?", err=True):
        raise typer.Exit(1)


def _comes_back(opened: "Index", keys: Sequence[str]) -> int:
    """How many of the files that were removed the next run would take in again."""
    from diptych.search.stores.keys import file_of

    roots = opened.roots
    below = tuple(root.rstrip(os.sep) + os.sep for root in roots)
    return sum(file in roots or file.startswith(below) for file in {file_of(key) for key in keys})
