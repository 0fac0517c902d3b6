"""Where a user's data and caches of this program lie, as each platform has it."""

import os
import sys
from pathlib import Path


def data_folder() -> Path:
    """The platform's folder for a user's data of this program."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "diptych"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "diptych"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "diptych"


def cache_folder() -> Path:
    """The platform's folder for what can be made again."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "diptych"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "diptych" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diptych"
