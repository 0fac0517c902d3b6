"""Every number in the papers' tables, as data: one JSON file a paper, in the folder `published`.

published("camp/table-3").rows[0].figures()   ->   {"flickr30k/i2t/r@1": 68.1, ...}
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from diptych.common.errors import DiptychError, nearest
from diptych.evaluation.result import prefixed


@dataclass(frozen=True)
class Column:
    """A column: our name for what it holds, what is printed above it, and its unit."""

    name: str
    heading: str
    unit: str


@dataclass(frozen=True)
class PublishedRow:
    """A row: a method under a protocol.

    labels: what tells it from other rows of the same method, such as its features
    values: by column name; `None` where a dash or nothing is printed
    doubtful: columns whose number is probably not what was meant; `note` says why
    """

    method: str
    protocol: str | None
    labels: dict[str, str]
    values: dict[str, float | None]
    doubtful: tuple[str, ...]
    note: str | None

    @property
    def label(self) -> str:
        """The method and what tells it from its neighbours, in one line."""
        parts = [
            f"{key}: {value}" if value in ("yes", "no", "none", "-") else value for key, value in self.labels.items()
        ]
        return f"{self.method} ({', '.join(parts)})" if parts else self.method

    @property
    def address(self) -> str:
        """The label, and the protocol where a table has one label under several."""
        return f"{self.label} [{self.protocol}]"

    def figures(self) -> dict[str, float]:
        """What is printed, under our figures' names with the protocol in front; doubtful numbers are left out."""
        return {
            prefixed(self.protocol, name) if self.protocol else name: value
            for name, value in self.values.items()
            if value is not None and name not in self.doubtful
        }


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper; `id` is such as `camp/table-3`."""

    id: str
    paper_title: str
    venue: str
    printed_as: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[PublishedRow, ...]
    notes: tuple[str, ...]
    digits: int | None

    def row(self, label: str, protocol: str | None = None) -> PublishedRow:
        """The row of a method (or of its whole label, or address), under a protocol where it has several."""
        fitting = [
            row
            for row in self.rows
            if label in (row.method, row.label, row.address) and (protocol is None or row.protocol == protocol)
        ]
        if not fitting:
            raise DiptychError(f"no row {label!r}; {nearest(label, [row.label for row in self.rows])}", where=self.id)
        if len({row.label for row in fitting}) > 1 or len({row.protocol for row in fitting}) > 1:
            choices = ", ".join(row.address for row in fitting)
            raise DiptychError(f"{label!r} fits several rows: {choices}", where=self.id)
        return fitting[0]


@lru_cache
def published_tables() -> dict[str, PublishedTable]:
    """All tables by id, paper by paper in the order they are printed.

    >>> "camp/table-3" in published_tables()
    True
    """
    tables = {}
    folder = files("diptych.evaluation") / "published"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".json"):
            continue
        paper = json.loads(file.read_text(encoding="utf-8"))
        for tree in paper["tables"]:
            columns = tuple(Column(**column) for column in tree["columns"])
            table = PublishedTable(
                id=f"{paper['paper']}/{tree['id']}",
                paper_title=paper["title"],
                venue=paper["venue"],
                printed_as=tree["printed_as"],
                caption=tree["caption"],
                columns=columns,
                rows=tuple(
                    PublishedRow(
                        method=row["method"],
                        protocol=row.get("protocol"),
                        labels=row.get("labels", {}),
                        values={
                            c.name: None if v is None else float(v) for c, v in zip(columns, row["values"], strict=True)
                        },
                        doubtful=tuple(row.get("doubtful", ())),
                        note=row.get("note"),
                    )
                    for row in tree["rows"]
                ),
                notes=tuple(tree["notes"]),
                digits=tree["digits"],
            )
            tables[table.id] = table
    return tables


def published(id: str) -> PublishedTable:
    """A table by its id, such as `camp/table-3` or `vse-infinity/table-4`.

    >>> published("camp/table-1").row("CAMP (ours)", "coco-1k").figures()["coco-1k/i2t/r@1"]
    72.3
    """
    tables = published_tables()
    if id not in tables:
        raise DiptychError(f"no such published table; {nearest(id, list(tables))}", where=id)
    return tables[id]
