"""The names of models."""

import os
from pathlib import Path

# What comes with Diptych.
SHIPPED = ("default",)


def canonical_name(name: str | Path) -> str:
    """A model's name that means the same anywhere: of a folder, its absolute path."""
    text = str(name)
    if text in SHIPPED or not Path(text).expanduser().is_dir():
        return text
    return os.path.abspath(Path(text).expanduser())
