from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.search.filling.exchange import layout_of_file
from diptych.search.index import Index
from diptych.search.stores.store import Layout
from tests.search.random_embedder import random_units


def filled(path: Path, set_size: int = 2, count: int = 5) -> Index:
    index = Index.create(path, None, layout=Layout(3, set_size))
    keys = [f"k{i} ü" for i in range(count)]
    index.add_vectors(keys, random_units(count, set_size, 3, 0), metadata={keys[0]: {"album": "a", "stars": 4}})
    index.add_vectors(["s"], random_units(1, set_size, 3, 1), "sentence", ["two dogs"])
    return index


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("set_size", [1, 2])
def test_out_and_in_again(tmp_path: Path, suffix: str, set_size: int) -> None:
    index = filled(tmp_path / "i.db", set_size)
    path = tmp_path / f"out{suffix}"
    assert index.export(path) == 6
    assert layout_of_file(path) == Layout(3, set_size)
    other = Index.create(tmp_path / "j.db", None, layout=Layout(3, set_size))
    assert other.import_(path) == other.import_(path) == 6
    keys = [stamp.key for stamp in index.store.stamps()]
    assert list(other.store.stamps()) == list(index.store.stamps())
    for one, two in zip(index.store.get(keys), other.store.get(keys), strict=True):
        assert one is not None
        assert two is not None
        np.testing.assert_array_equal(two.vectors, one.vectors)
        assert (two.kind, two.text, two.metadata, two.stamp) == (one.kind, one.text, one.metadata, one.stamp)


def test_numpy_reads_what_was_written(tmp_path: Path) -> None:
    index = filled(tmp_path / "i.db")
    index.export(tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as held:
        assert held["vectors"].shape == (6, 2, 3)
        assert held["keys"].tolist()[0] == "k0 ü"
        assert held["kinds"].tolist().count("sentence") == 1


def test_more_than_one_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("exchange", "entry_table"):
        monkeypatch.setattr(f"diptych.search.filling.{name}.AT_ONCE", 2)
    index = filled(tmp_path / "i.db")
    for suffix in (".npz", ".parquet"):
        index.export(tmp_path / f"out{suffix}")
        other = Index.create(tmp_path / f"{suffix}.db", None, layout=Layout(3, 2))
        assert other.import_(tmp_path / f"out{suffix}") == len(other) == 6


def test_vectors_that_others_made(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    vectors = np.array([[3.0, 4.0], [1.0, 0.0]])
    np.savez(tmp_path / "a.npz", keys=np.array(["x", "y"]), vectors=vectors)
    parquet.write_table(pyarrow.table({"key": ["x", "y"], "vector": vectors.tolist()}), tmp_path / "a.parquet")
    for name in ("a.npz", "a.parquet"):
        index = Index.create(tmp_path / f"{name}.db", None, layout=layout_of_file(tmp_path / name))
        assert index.import_(tmp_path / name) == 2
        entry = index.store.get(["x"])[0]
        assert entry is not None
        np.testing.assert_allclose(entry.vectors, [[0.6, 0.8]], atol=1e-6)


@pytest.mark.parametrize(
    "vectors",
    [
        [[1.0], [1.0, 2.0, 3.0], [1.0, 2.0]],  # as many numbers in all as three vectors of two have
        [[1.0, 2.0], [1.0, 2.0, 3.0, 4.0], []],
        [[1.0, 2.0], None, [1.0, 2.0]],
    ],
)
def test_vectors_of_unequal_length_are_not_shifted(tmp_path: Path, vectors: list[list[float] | None]) -> None:
    import pyarrow
    from pyarrow import parquet

    index = Index.create(tmp_path / "i.db", None, layout=Layout(2))
    table = pyarrow.table({"key": ["a", "b", "c"], "vector": vectors})
    parquet.write_table(table, tmp_path / "ragged.parquet")
    with pytest.raises(DiptychError, match=r"ragged\.parquet: row [12]: vector: .*same length"):
        index.import_(tmp_path / "ragged.parquet")
    assert len(index) == 0


def test_one_key_is_no_list_of_its_letters(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "i.db", None, layout=Layout(2))
    index.add_vectors(["a", "b", "abc"], np.ones((3, 2)))
    with pytest.raises(DiptychError, match=r"expected several keys, got the text 'abc'; one key is given as \['abc'\]"):
        index.delete("abc")
    assert len(index) == 3
    assert index.delete(["abc"]) == 1


def test_files_that_hold_no_vectors(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    index = Index.create(tmp_path / "i.db", None, layout=Layout(2))
    (tmp_path / "bad.npz").write_bytes(b"x")
    (tmp_path / "bad.parquet").write_bytes(b"x")
    np.savez(tmp_path / "none.npz", names=np.array(["x"]))
    np.savez(tmp_path / "fewer.npz", keys=np.array(["x"]), vectors=np.ones((2, 2)))
    np.savez(tmp_path / "pickled.npz", keys=np.array(["x"], dtype=object), vectors=np.ones((1, 2)))
    parquet.write_table(pyarrow.table({"key": ["x"]}), tmp_path / "none.parquet")
    ragged = pyarrow.table({"key": ["x", "y"], "vector": [[1.0], [1.0, 2.0]]})
    parquet.write_table(ragged, tmp_path / "ragged.parquet")
    for name, words in {
        "bad.npz": "not a readable .npz", "bad.parquet": "not a readable parquet", "none.npz": "no array 'keys'",
        "fewer.npz": r"keys: an array of shape \(1,\) for 2 vectors", "pickled.npz": "keys: an array of Python objects",
        "none.parquet": "no column 'vector'",
        "ragged.parquet": "same length", "gone.npz": "no such file", "a.csv": "ends in .npz or .parquet",
    }.items():  # fmt: skip
        with pytest.raises(DiptychError, match=words):
            index.import_(tmp_path / name)
    with pytest.raises(DiptychError, match=r"ends in \.npz or \.parquet"):
        index.export(tmp_path / "a.csv")
