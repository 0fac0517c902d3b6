"""What comes with vectors from elsewhere: its columns, and whether their values are what they should be."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError

# Columns beside the vectors, and what their values are.
TEXTS, NUMBERS = ("keys", "kinds", "texts", "metadata", "digest"), ("size", "changed")
COLUMNS = (*TEXTS, *NUMBERS)
READ = frozenset({*COLUMNS, "vector"})
KINDS = ("picture", "sentence")


def check_columns(rows: Mapping[str, Any], start: int, path: Path) -> None:
    """See that what comes from elsewhere has the types that it should; an error names the row, from 0, and column."""
    for name in TEXTS:
        for row, value in enumerate(rows.get(name, ()), start):
            missing = value is None and name != "keys"
            if not missing and not isinstance(value, str):
                raise DiptychError(f"{path}: row {row}: {name}: expected a text, got {value!r}")
            if name == "keys" and not value:
                raise DiptychError(f"{path}: row {row}: {name}: the key is empty")
            if name == "kinds" and value and value not in KINDS:
                raise DiptychError(f"{path}: row {row}: {name}: expected {' or '.join(KINDS)}, got {value!r}")
    for name in NUMBERS:
        for row, value in enumerate(rows.get(name, ()), start):
            if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
                raise DiptychError(f"{path}: row {row}: {name}: expected a whole number, got {value!r}")


def check_vectors(vectors: np.ndarray, path: Path) -> None:
    """See that an array from elsewhere can be vectors (n, d) or sets (n, K, d)."""
    if vectors.dtype.kind not in "fiu" or vectors.ndim not in (2, 3) or 0 in vectors.shape[1:]:
        raise DiptychError(
            f"{path}: vectors: an array {vectors.shape} of {vectors.dtype}; expected real numbers, (n, d) or (n, K, d)"
        )
