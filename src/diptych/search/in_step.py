"""An index brought in step with all the folders that it was ever filled from."""

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.data.collection import DataProblem
from diptych.search.filling.broken import BROKEN, broken_keys
from diptych.search.filling.plan import Missing
from diptych.search.filling.roots import ROOT, Root, read_roots
from diptych.search.filling.skipped import joined_kinds
from diptych.search.filling.sync import Embed, SyncReport
from diptych.search.filling.walk import Choice
from diptych.search.index import Index
from diptych.search.stores.keys import file_of


@dataclass(frozen=True)
class Effort:
    """How a run works, whatever it finds.

    batch_size: pictures a step; workers: threads that decode; embed: embeds in place of the index's own model
    delete: also delete where all or most of a folder is gone
    retry: try pictures again that could not be decoded, though nothing about them has changed
    text_in_pictures: read what is written in pictures; None goes on with what the index was last told
    """

    batch_size: int | None = None
    workers: int | None = None
    embed: Embed | None = None
    delete: bool = False
    retry: bool = False
    text_in_pictures: bool | None = None


def sync_all(
    index: Index,
    effort: Effort | None = None,
    *,
    wanted: Callable[[Root], Root] = lambda root: root,
    only: Collection[str] | None = None,
) -> SyncReport:
    """Bring an index in step with its roots, each with what was wanted of it the last time.

    A root that is not there is among the `missing`, as a disk may only not be mounted; with `delete` it is forgotten.

    wanted: what is wanted of a root now
    only: the paths of the roots that are looked at, by default all
    """
    effort = effort or Effort()
    roots = [wanted(root) for root in read_roots(index.store.properties) if only is None or root.path in only]
    if not roots and only is None:
        raise DiptychError("was filled from no folder yet; name one: `diptych index FOLDER`", where=index.store.address)
    report = SyncReport()
    groups: dict[tuple[Choice, str | None], list[str]] = {}
    for root in roots:
        if os.path.exists(root.path):
            groups.setdefault((root.choice, root.metadata), []).append(root.path)
        else:
            report = joined(report, _without(index, root.path, effort.delete))
    for (choice, metadata), paths in groups.items():
        report = joined(report, _sync(index, paths, choice, metadata, effort))
    return report


def joined(first: SyncReport, second: SyncReport) -> SyncReport:
    """Two runs as one."""
    both = SyncReport(*(getattr(first, field.name) + getattr(second, field.name) for field in fields(SyncReport)))
    return replace(both, skipped=joined_kinds(both.skipped))


def forget(index: Index, path: str) -> tuple[str, ...]:
    """No longer keep the index in step with a path and what lies in it; the roots that are forgotten."""
    below = path.rstrip(os.sep) + os.sep
    roots = tuple(root for root in index.roots if root == path or root.startswith(below))
    broken = [key for key in broken_keys(index.store.properties) if file_of(key) == path or key.startswith(below)]
    index.store.delete_properties([*(ROOT + root for root in roots), *(BROKEN + key for key in broken)])
    return roots


def _sync(index: Index, paths: list[str], choice: Choice, metadata: str | None, effort: Effort) -> SyncReport:
    table = None if metadata is None else Path(metadata)
    problems: tuple[DataProblem, ...] = ()
    if table is not None and not table.is_file():
        problems = (DataProblem(str(table), "the table of metadata is not there; columns stay as they are"),)
    report = index.sync(
        *paths,
        what=choice.what,
        exclude=choice.exclude,
        hidden=choice.hidden,
        archives=choice.archives,
        metadata=None if problems else table,
        batch_size=effort.batch_size,
        workers=effort.workers,
        embed=effort.embed,
        delete=effort.delete,
        retry=effort.retry,
        text_in_pictures=effort.text_in_pictures,
    )
    if problems:  # it may come back
        for path in paths:
            index.store.set_properties(Root(path, choice, metadata).property)
    return joined(report, SyncReport(problems=problems))


def _without(index: Index, path: str, delete: bool) -> SyncReport:
    """What becomes of a root that is not there."""
    own = (stamp.key for stamp in index.store.stamps(path))
    keys = [key for key in own if file_of(key) == path or key.startswith(path.rstrip(os.sep) + os.sep)]
    was_file = bool(keys) and all(file_of(key) == path for key in keys)
    if delete or not keys or (was_file and os.path.isdir(os.path.dirname(path))):
        forget(index, path)
        return SyncReport(deleted=index.delete(keys))
    files = len({file_of(key) for key in keys})
    return SyncReport(missing=(Missing(path, files, files),))
