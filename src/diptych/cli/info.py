"""`diptych info`."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.config_file import ConfigOption
from diptych.cli.options import IndexOption

if TYPE_CHECKING:
    from diptych.search.about import IndexInfo


def command(
    index: IndexOption = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what an index is: its model, what it holds, the folders that it is kept in step with, its size and age."""
    from diptych.cli.own_index import named_or_own
    from diptych.search.about import about
    from diptych.search.index import Index

    with Index.open(named_or_own(index)) as opened:
        told = about(opened)
    if as_json:
        print(json.dumps({**told.to_json(), "config": None if config is None else str(config)}, ensure_ascii=False))
        return
    rows = [("index", told.address), ("model", told.model or "none; vectors from elsewhere"), *_rows(told)]
    if config is not None:
        rows.append(("settings", str(config)))
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:<{width}}  {text}")


def _rows(told: "IndexInfo") -> list[tuple[str, str]]:
    entries = [_counted(told.pictures, "picture")]
    entries += [_counted(told.sentences, "sentence")] if told.sentences else []
    vectors = f"{told.dim} numbers" + (f" x {told.set_size}" if told.set_size > 1 else "") + " each"
    rows = [("entries", ", ".join(entries)), ("vectors", vectors)]
    if told.broken:
        rows.append(("unreadable", f"{_counted(told.broken, 'picture')}; `diptych index` names them"))
    if told.columns:
        rows.append(("columns", ", ".join(told.columns)))
    for number, root in enumerate(told.roots):
        gone = "" if root.there else "; not there now"
        held = "1 entry" if root.entries == 1 else f"{root.entries:,} entries"
        rows.append(("" if number else "folders", f"{root.path} ({root.wanted}; {held}{gone})"))
    if told.bytes is not None:
        rows.append(("size", size_text(told.bytes)))
    if told.made is not None or told.made_with is not None:
        parts = [f"{told.made:%Y-%m-%d %H:%M}"] if told.made else []
        rows.append(("made", ", ".join([*parts, *([told.made_with] if told.made_with else [])])))
    if told.changed is not None:
        rows.append(("changed", f"{told.changed:%Y-%m-%d %H:%M}"))
    return rows


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def size_text(count: float) -> str:
    """A number of bytes for people."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    step = 0
    while count >= 1024 and step < len(units) - 1:
        count, step = count / 1024, step + 1
    return f"{count:,.{int(step > 0)}f} {units[step]}"
