"""What an index is: its model, its folders, its size."""

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from diptych.search.filling.broken import broken_keys
from diptych.search.filling.roots import Root, read_roots
from diptych.search.index import Index
from diptych.search.models.index_model import MADE, MADE_WITH
from diptych.search.stores.keys import patterns_of
from diptych.search.stores.store import Condition

# Files beside an index's own, which can be made again from it, and SQLite's log.
BESIDE = (".vectors", ".approximate", "-wal")


@dataclass(frozen=True)
class RootInfo:
    """A folder or file of an index: what is wanted of it, how many entries it has, whether it is there."""

    path: str
    wanted: str
    entries: int
    there: bool


@dataclass(frozen=True)
class IndexInfo:
    """An index.

    model: its name; empty where vectors came from elsewhere
    made_with: the version of Diptych; made, changed: when, or None where that is not known
    bytes: on disk, with the files beside it; None on a server
    columns: that filters can ask for, besides those that all have
    broken: pictures that could not be decoded
    """

    address: str
    model: str
    pictures: int
    sentences: int
    dim: int
    set_size: int
    roots: tuple[RootInfo, ...]
    columns: tuple[str, ...]
    broken: int
    bytes: int | None
    made_with: str | None
    made: datetime | None
    changed: datetime | None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        shown = asdict(self)
        for name in ("made", "changed"):
            shown[name] = None if shown[name] is None else shown[name].isoformat(timespec="seconds")
        return shown


def about(index: Index) -> IndexInfo:
    """What is known of an index without loading its model or its vectors."""
    store, properties = index.store, index.store.properties
    files = [] if "://" in store.address else [path for path in _files(Path(store.address)) if path.is_file()]
    made = properties.get(MADE)
    return IndexInfo(
        address=store.address,
        model=index.model,
        pictures=store.count([Condition("kind", "=", "picture")]),
        sentences=store.count([Condition("kind", "=", "sentence")]),
        dim=store.dim,
        set_size=store.set_size,
        roots=tuple(_root(index, root) for root in read_roots(properties)),
        columns=tuple(store.columns()),
        broken=len(broken_keys(properties)),
        bytes=sum(path.stat().st_size for path in files) if files else None,
        made_with=properties.get(MADE_WITH),
        made=None if made is None else datetime.fromisoformat(made).astimezone(),
        changed=_last(files),
    )


def _files(path: Path) -> list[Path]:
    return [path, *(path.with_name(path.name + end) for end in BESIDE)]


def _last(files: Iterable[Path]) -> datetime | None:
    """When one of an index's own files was last written."""
    times = [path.stat().st_mtime for path in files if not path.name.endswith((".vectors", ".approximate"))]
    return datetime.fromtimestamp(max(times)).astimezone() if times else None


def _root(index: Index, root: Root) -> RootInfo:
    choice = root.choice
    wanted: list[str] = [choice.what]
    wanted += [f"without {pattern}" for pattern in choice.exclude]
    wanted += [word for word, said in (("hidden", choice.hidden), ("archives", choice.archives)) if said]
    wanted += [] if root.metadata is None else [f"columns of {root.metadata}"]
    entries = sum(index.count([Condition("path", "matches", pattern)]) for pattern in patterns_of(root.path))
    return RootInfo(root.path, ", ".join(wanted), entries, os.path.exists(root.path))
