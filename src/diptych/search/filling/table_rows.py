"""Rows of tables: csv, tsv and parquet, as they come."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diptych.common.errors import DiptychError
from diptych.data.collection import DataProblem
from diptych.data.readers.tables import cells_of

ROWS_AT_ONCE = 64


def csv_rows(path: Path) -> Iterator[tuple[int, dict[str, str] | DataProblem]]:
    """The rows of a csv or tsv file with a header, and the line that each ends on; what is wrong with a row."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        header: list[str] | None = None
        for line, cells in cells_of(path, lines, "\t" if path.suffix.lower() == ".tsv" else ","):
            if header is None:
                header = [cell.strip() for cell in cells]
            elif cells:
                if len(cells) != len(header):
                    what = f"expected {len(header)} fields, got {len(cells)}"
                    yield line, DataProblem(f"{path}: line {line}", what)
                else:
                    yield line, dict(zip(header, cells, strict=True))


def parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a parquet file with their numbers, without holding them all."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DiptychError("needs the package pyarrow; install diptych[search]", where=path) from None
    try:
        with parquet.ParquetFile(path) as table:
            row = 0
            for batch in table.iter_batches(ROWS_AT_ONCE):
                for record in batch.to_pylist():
                    yield row, record
                    row += 1
    except pyarrow.ArrowException as error:
        raise DiptychError(f"not a readable parquet file: {error}", where=path) from None
