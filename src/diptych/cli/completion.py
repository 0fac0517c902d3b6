"""What a shell may offer as the value of an option."""

import os
from pathlib import Path

import typer

from diptych.common.errors import DiptychError
from diptych.common.model_place import SHIPPED, shipped_folder

DEVICES = ("auto", "cpu", "cuda")
# What an index's file begins with, and where it says that it is one.
_SQLITE, _APPLICATION, _AT = b"SQLite format 3\0", b"DIPT", 68


def complete_device(incomplete: str) -> list[str]:
    """Devices."""
    return [name for name in DEVICES if name.startswith(incomplete)]


def complete_index(incomplete: str) -> list[str]:
    """Indexes that lie where the words so far lead, and folders on the way."""
    folder = Path(os.path.expanduser(incomplete)).parent if "/" in incomplete else Path()
    start = incomplete.rpartition("/")[0] + "/" if "/" in incomplete else ""
    there = sorted(folder.glob("*")) if folder.is_dir() else []
    found = [f"{start}{p.name}" + ("/" if p.is_dir() else "") for p in there if p.is_dir() or is_index(p)]
    return [name for name in found if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    """Models that ship, and runs and model folders that lie where the words so far lead."""
    shipped = [name for name in SHIPPED if shipped_folder(name) is not None]
    folders = [Path(incomplete).parent, *([Path("runs")] if "/" not in incomplete else [])]
    there = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()) if path.is_dir()]
    runs = [str(path) for path in there if any((path / name).is_file() for name in ("config.json", "best/config.json"))]
    return [name for name in [*shipped, *dict.fromkeys(runs)] if name.startswith(incomplete)]


def complete_column(ctx: typer.Context, incomplete: str) -> list[str]:
    """Columns of the index that the line names, or else of the user's own."""
    return [name for name in _columns(ctx) if name.startswith(incomplete)]


def complete_filter(ctx: typer.Context, incomplete: str) -> list[str]:
    """A column and an operator, where nothing but the begin of a name is there."""
    return [f"{name}=" for name in _columns(ctx) if name.startswith(incomplete)]


def is_index(path: Path) -> bool:
    """Whether a file says that it is an index; nothing but its first bytes is read."""
    try:
        with path.open("rb") as file:
            head = file.read(_AT + len(_APPLICATION))
    except OSError:
        return False
    return head.startswith(_SQLITE) and head[_AT:] == _APPLICATION


def _columns(ctx: typer.Context) -> list[str]:
    from diptych.search.stores.address import default_index, open_store
    from diptych.search.stores.store import OWN_FIELDS

    named = ctx.params.get("index") or default_index()
    try:
        store = open_store(named)
    except DiptychError:
        return list(OWN_FIELDS)
    try:
        return sorted([*OWN_FIELDS, *store.columns()])
    finally:
        store.close()
