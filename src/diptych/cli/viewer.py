"""Files opened with the program that the system has for them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from diptych.common.errors import DiptychError
from diptych.search.stores.keys import file_of


def open_entries(keys: Sequence[str]) -> None:
    """Open the files of entries, each once; what is only a part of a tar or parquet file cannot be."""
    files = list(dict.fromkeys(file_of(key) for key in keys))
    for file in files:
        if not os.path.exists(file):
            raise DiptychError("no such file any more; it cannot be opened", where=file)
        if file.lower().endswith((".tar", ".tar.gz", ".tgz", ".parquet")):
            raise DiptychError("holds several pictures; one of them cannot be opened by itself", where=file)
    for file in files:
        _open(file)


def _open(file: str) -> None:
    if sys.platform == "win32":
        os.startfile(file)
        return
    program = "open" if sys.platform == "darwin" else "xdg-open"
    if shutil.which(program) is None:
        raise DiptychError(f"{program} is not there, which opens files; `--paths` gives them to another program")
    # The viewer stays when this program ends, and says nothing into its output.
    subprocess.Popen(
        [program, file], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
