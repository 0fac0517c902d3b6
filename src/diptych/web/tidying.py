"""Uploads that no entry speaks of, put aside when a server starts."""

import sys

from diptych.common.errors import DiptychError
from diptych.search.index import Index
from diptych.web.service.left_over import ASIDE, UploadsFolder
from diptych.web.settings import ServerSettings, uploads_of


def tidy_uploads(settings: ServerSettings, index: Index) -> None:
    """Put them aside, and say so; a folder that cannot be tidied is no reason not to serve."""
    uploads = UploadsFolder(uploads_of(settings, index.store.address), index)
    try:
        count = uploads.tidy()
    except (DiptychError, OSError) as error:
        print(f"note: {uploads.folder} could not be tidied: {error}", file=sys.stderr)
        return
    if count:
        files = "1 upload" if count == 1 else f"{count:,} uploads"
        place = uploads.folder / ASIDE
        print(f"note: {files} without an entry put aside in {place}, for a month", file=sys.stderr)
