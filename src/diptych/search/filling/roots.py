"""The folders and files that an index was filled from, remembered with what was wanted of them."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from diptych.search.filling.walk import Choice

# A store's property of this name says that the index was brought in step with a folder or file, and how.
ROOT = "root:"


@dataclass(frozen=True)
class Root:
    """A folder or file of an index.

    path: absolute
    choice: which of its files were wanted the last time
    metadata: the absolute path of the table that its columns came from, or None
    """

    path: str
    choice: Choice = field(default_factory=Choice)
    metadata: str | None = None

    @property
    def property(self) -> dict[str, str]:
        """As a store keeps it."""
        told = asdict(self.choice) | ({} if self.metadata is None else {"metadata": self.metadata})
        return {ROOT + self.path: json.dumps(told, ensure_ascii=False)}


def new_root(path: str, choice: Choice, metadata: object) -> Root:
    """A root as it is wanted now; a table of metadata is remembered where it is a file."""
    return Root(path, choice, os.path.abspath(metadata) if isinstance(metadata, Path) else None)


def read_roots(properties: Mapping[str, str]) -> list[Root]:
    """The roots among a store's properties, in the order of their paths: a folder before those within it."""
    paths = sorted(name.removeprefix(ROOT) for name in properties if name.startswith(ROOT))
    return [_read(path, properties[ROOT + path]) for path in paths]


def _read(path: str, told: str) -> Root:
    if not told:  # as it was kept before choices were remembered
        return Root(path)
    values = json.loads(told)
    metadata = values.pop("metadata", None)
    values["exclude"] = tuple(values.get("exclude", ()))
    known = {name: value for name, value in values.items() if name in Choice.__dataclass_fields__}
    return Root(path, Choice(**known), metadata)
