"""Columns that pictures have by themselves, read for entries that are in the index already: nothing is embedded."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from PIL import Image

from diptych.common.errors import DiptychError
from diptych.common.progress import progress_bar
from diptych.common.read_ahead import check_sizes, in_order
from diptych.data.collection import Open
from diptych.data.photo import Columns
from diptych.data.pictures import PictureBytes, PictureFile, PicturePart, file_columns
from diptych.search.filling.seal import READ, TEXT, digest_read, read_of
from diptych.search.filling.skipped import can_be_read
from diptych.search.filling.walk import PICTURES, file_kind, prefix_of
from diptych.search.stores.keys import file_of, open_key
from diptych.search.stores.store import WRITTEN, Description, Stamp, Store

AT_ONCE = 64
# Reads what is written in a picture.
ReadText = Callable[[Image.Image], str]


def own_columns(source: Open | None, stamp: Stamp) -> Columns:
    """What a picture says of itself, wherever it is, without decoding it; nothing where it cannot be told so."""
    if not isinstance(source, PictureFile):
        return {}
    try:
        return {**file_columns(source.path), **size_column(source, stamp)}
    except DiptychError:
        return {}


def size_column(source: Open | None, stamp: Stamp) -> Columns:
    """How many bytes a picture has; nothing for one in memory."""
    if isinstance(source, PictureFile):
        return {"bytes": stamp.size}
    if isinstance(source, PicturePart):
        return {"bytes": source.size}
    return {"bytes": len(source.data)} if isinstance(source, PictureBytes) else {}


def describe_entries(
    store: Store, roots: Sequence[str], read_text: ReadText | None = None, workers: int | None = None
) -> int:
    """Fill in the columns of entries below `roots` that were never looked at so; how many.

    read_text: also what is written in each picture; those of which it was read before are left alone
    """
    wanted = READ + (TEXT if read_text else "")
    waiting = (stamp for root in roots for stamp in _undescribed(store, root, wanted))
    described = 0
    with progress_bar("pictures") as bar:
        task = bar.add_task("reading text" if read_text else "reading columns", total=None, note="")
        # A stamp is asked for when those before it are written, so that a run that is killed goes on from there.
        while some := list(islice(waiting, AT_ONCE)):
            found = list(in_order(lambda stamp: _read(stamp, read_text), some, check_sizes(1, workers), 2 * AT_ONCE))
            described += _keep(store, some, found, wanted)
            bar.update(task, advance=len(some), note="")
    return described


def _undescribed(store: Store, root: str, wanted: str) -> Iterator[Stamp]:
    for stamp in store.stamps(prefix_of(root)):
        file = file_of(stamp.key)
        kind = file_kind(file)
        alone = kind in PICTURES and file == stamp.key
        # Frames of a video came with their columns; their text is read as a picture's is.
        if kind is None or not (alone or (kind == "video" and TEXT in wanted)) or not can_be_read(kind):
            continue
        if set(wanted) - set(read_of(stamp.digest)):
            yield stamp


def _read(stamp: Stamp, read_text: ReadText | None) -> Columns | None:
    """The columns of a picture; None where it cannot be read now."""
    try:
        columns: Columns = {}
        if file_of(stamp.key) == stamp.key:
            columns = {**file_columns(Path(stamp.key)), "bytes": stamp.size}
        if read_text is not None and TEXT not in read_of(stamp.digest):
            written = read_text(open_key(stamp.key)())
            columns |= {WRITTEN: written} if written else {}
        return columns
    except DiptychError:
        return None


def _keep(store: Store, stamps: Sequence[Stamp], found: Sequence[Columns | None], wanted: str) -> int:
    """Write what was read; columns that are there already stay, since a table may have given them."""
    new = []
    for entry, columns in zip(store.get([stamp.key for stamp in stamps], locals=False), found, strict=True):
        if entry is not None and columns is not None:
            stamp = Stamp(entry.key, entry.stamp.size, entry.stamp.changed, digest_read(entry.stamp.digest, wanted))
            new.append(Description(stamp, {**columns, **entry.metadata}))
    store.describe(new)
    return len(new)
