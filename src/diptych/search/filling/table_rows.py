"""Rows of tables: csv, tsv and parquet, as they come."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

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


def parquet_rows(
    source: Path | IO[bytes], where: str, rows: tuple[int, int] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a parquet file with their numbers, without holding them all; `where` names it in errors.

    rows: the first that is wanted and the one after the last; groups of rows without any of these are not read
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DiptychError("needs the package pyarrow; install diptych[search]", where=where) from None
    try:
        with parquet.ParquetFile(source) as table:
            start, stop = rows or (0, table.metadata.num_rows)
            row = 0
            for group in range(table.metadata.num_row_groups):
                after = row + table.metadata.row_group(group).num_rows
                if after <= start or row >= stop:
                    row = after
                    continue
                for batch in table.iter_batches(ROWS_AT_ONCE, row_groups=[group]):
                    first, last = max(start, row), min(stop, row + len(batch))
                    if first < last:
                        yield from enumerate(batch.slice(first - row, last - first).to_pylist(), first)
                    row += len(batch)
    except pyarrow.ArrowException as error:
        raise DiptychError(f"not a readable parquet file: {error}", where=where) from None
