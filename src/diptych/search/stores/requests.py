"""Rows for a server, in requests that are not too large for it."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_requests(rows: Iterable[T], size: Callable[[T], int], most: int, together: int = 1) -> Iterator[list[T]]:
    """Rows, so many at once as one request of about `most` bytes holds; `together` rows are never parted.

    size: about how many bytes a row takes
    """
    batch, used = list[T](), 0
    for row in rows:
        if used > most and len(batch) % together == 0:
            yield batch
            batch, used = [], 0
        batch.append(row)
        used += size(row)
    if batch:
        yield batch
