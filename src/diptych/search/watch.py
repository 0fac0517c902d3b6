"""Folders watched for changes, burst by burst."""

import os
from collections.abc import Iterator, Sequence
from threading import Event

from diptych.common.errors import DiptychError
from diptych.search.filling.walk import file_kind, is_of_index

# A burst ends after so many milliseconds of quiet, or when it has gone on for so long.
QUIET, LONGEST = 500, 10_000
# Every so many milliseconds all folders are looked at: some file systems tell nothing, and disks come and go.
EVERY = 600_000


def watch_roots(
    roots: Sequence[str], index: str, stop: Event | None = None, *, every: int = EVERY
) -> Iterator[list[str]]:
    """The roots (folders and files) in which files came, changed or went, burst after burst; all of them now and then.

    Those that are not there are looked for now and then. What changes while a burst is worked on is the next one.

    index: the address of the index, whose own file may lie in one of the folders
    stop: set by another thread to end it
    every: milliseconds after which all roots are given, whatever was seen
    """
    try:
        from watchfiles import Change, watch
    except ImportError:
        raise DiptychError("watching needs the package watchfiles; install diptych[search]") from None

    def matters(_: Change, path: str) -> bool:
        return may_matter(path, index)

    while stop is None or not stop.is_set():
        there = [root for root in roots if os.path.exists(root)]
        if not there:
            raise DiptychError("none of the folders is there; nothing to watch", where=", ".join(roots))
        try:
            for changes in watch(
                *there,
                watch_filter=matters,
                debounce=LONGEST,
                step=QUIET,
                stop_event=stop,
                rust_timeout=every,
                yield_on_timeout=True,
            ):
                if not changes:
                    break
                yield [root for root in there if any(_within(path, root) for _, path in changes)]
            else:
                return
        except OSError as error:
            raise DiptychError(f"the folders cannot be watched: {error}") from None
        yield list(roots)


def may_matter(path: str, index: str) -> bool:
    """Whether a change at a path may change what is indexed: not the index's own files, nor kinds that nobody reads.

    A folder, and what is no longer there to be looked at, may.
    """
    return not is_of_index(path, index) and (file_kind(path) is not None or not os.path.isfile(path))


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)
