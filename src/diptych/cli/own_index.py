"""The index that a command searches."""

from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.search.stores.address import default_index


def named_or_own(index: str | None) -> str | Path:
    """The index that --index names, or else the user's own; an error where that is not there yet."""
    if index is not None:
        return index
    own = default_index()
    if not own.exists():
        raise DiptychError("there is no index yet; make one with `diptych index FOLDER`", where=own)
    return own
