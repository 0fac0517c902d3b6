"""Whatever a command is given that is broken: one sentence on standard error, a status that is not 0, no traceback."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from diptych.cli.main import run
from diptych.search.index import Index
from diptych.search.stores.store import Layout
from tests.training.test_ablation import SMALL

Prepare = Callable[[Path], object]
NOT_UTF8 = "a caf\xe9".encode("latin-1")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe, an evaluated run of it, and an index of vectors."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "small.toml").write_text(SMALL)
    assert run(["train", str(folder / "small.toml"), "--out", str(folder / "run"), "--device", "cpu"]) == 0
    assert run(["evaluate", str(folder / "run"), "--device", "cpu"]) == 0
    with Index.create(folder / "i.db", None, layout=Layout(4), device="cpu") as index:
        index.add_vectors(["a", "b"], np.eye(4, dtype=np.float32)[:2])
    return folder


@pytest.fixture
def place(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it that may be broken, and is where the command runs."""
    folder = tmp_path / "here"
    shutil.copytree(base, folder, symlinks=True)
    monkeypatch.chdir(folder)
    return folder


def one_sentence(capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str) -> None:
    assert run(arguments) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"diptych {arguments[0]}: ")]
    assert len(said) == 1
    assert expected in said[0]


def written(name: str, data: bytes | str) -> Prepare:
    return lambda folder: (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def in_place_of(name: str) -> Prepare:
    """A folder where a file should be."""

    def prepare(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return prepare


def field(name: str, key: str, value: object) -> Prepare:
    """A JSON file with one of its fields changed."""

    def prepare(folder: Path) -> None:
        tree = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**tree, key: value}))

    return prepare


TRAIN, AGAIN = ["train", "small.toml", "--out", "new"], ["train", "small.toml", "--out", "run", "training.epochs=2"]
COMPARE = ["compare", "run", "run"]
EXPLAIN = ["explain", "scene-0-1", "a dog", "--out", "new.html"]
JUDGED = "run/evaluations/all-pairs-test"
BERT = 'model.text={kind="transformer", name="nobody/bert-of-nobody"}'
TEXTS: list[tuple[str, Prepare, list[str], str]] = [
    ("a recipe not in UTF-8", written("small.toml", NOT_UTF8), TRAIN, "small.toml: not valid UTF-8"),
    ("a folder for a recipe", in_place_of("small.toml"), TRAIN, "small.toml: cannot be read: Is a directory"),
    ("a deep recipe", written("small.toml", "x = " + "[" * 20000), TRAIN, "not valid TOML: nested too deeply"),
    ("a long number", written("small.toml", "x = " + "9" * 5000), TRAIN, "too many digits"),
    ("a list of variants", written("small.toml", "variants = [1]"), [*TRAIN, "--variant", "a"], "variants: expected a"),
    (
        "a number for a variant",
        written("small.toml", "[variants]\na = 1"),
        ["ablate", "small.toml"],
        "variants.a: expe",
    ),
    ("a table for a kind", Path.exists, [*TRAIN, "model.kind={a=1}"], "small.toml: model: kind {'a': 1} is not valid"),
    ("a number for a model", Path.exists, [*TRAIN, "model=1"], "model: 1 fits none of"),
    ("a long number in an override", Path.exists, [*TRAIN, "training.epochs=" + "9" * 5000], "epochs: expected int"),
    ("a run's recipe not in UTF-8", written("run/recipe.json", NOT_UTF8), AGAIN, "run/recipe.json: not valid UTF-8"),
    ("a list for a run's recipe", written("run/recipe.json", "[]"), AGAIN, "run/recipe.json: expected an object"),
    ("a deep recipe of a run", written("run/recipe.json", "[" * 20000), AGAIN, "not valid JSON: nested too deeply"),
    ("a log not in UTF-8", written("run/metrics.jsonl", NOT_UTF8), AGAIN, "run/metrics.jsonl: not valid UTF-8"),
    ("a folder for a log", in_place_of("run/metrics.jsonl"), AGAIN, "run/metrics.jsonl: cannot be read: Is a direct"),
    ("no model in a config", field("run/best/config.json", "matcher", [1]), ["evaluate", "run"], "is no matcher"),
    (
        "a list for a config",
        written("run/best/config.json", "[]"),
        ["evaluate", "run"],
        "config.json: format: expected",
    ),
    ("null for figures", field(f"{JUDGED}.json", "figures", None), COMPARE, "test.json: figures: expected a table"),
    ("text for a figure", field(f"{JUDGED}.json", "figures", {"rsum": "x"}), COMPARE, "figures.rsum: expected float"),
    ("a list for a protocol", field(f"{JUDGED}.json", "protocol", []), COMPARE, "test.json: protocol: expected str"),
    ("one end of a range", field(f"{JUDGED}.json", "ranges", {"a": [1.0]}), COMPARE, "ranges.a: expected two numbers"),
    ("half an archive", written(f"{JUDGED}.npz", b"PK\3\4x"), COMPARE, "test.npz: expected the per-query results"),
    ("metadata not in UTF-8", written("m.jsonl", NOT_UTF8), ["index", ".", "--metadata", "m.jsonl"], "not valid UTF-8"),
    ("no hub for a BERT", Path.exists, [*TRAIN, BERT], "nobody/bert-of-nobody: a tokenizer of this name is not in"),
    ("no hub for a model", Path.exists, [*EXPLAIN, "--model", "nobody/nothing"], "HF_HUB_OFFLINE is set"),
    ("a device of others", Path.exists, [*TRAIN, "--device", "tpu"], "'tpu' cannot be used on this machine"),
    ("a name that is too long", Path.exists, ["evaluate", "x" * 300], "File name too long"),
]


@pytest.mark.parametrize(("prepare", "arguments", "expected"), [case[1:] for case in TEXTS], ids=[c[0] for c in TEXTS])
def test_broken_files_and_values(
    place: Path, capsys: pytest.CaptureFixture[str], prepare: Prepare, arguments: list[str], expected: str
) -> None:
    prepare(place)
    if arguments[0] == "index":
        arguments = [*arguments, "--index", "i.db"]
    one_sentence(capsys, arguments, expected)
    assert not (place / "new" / "recipe.json").exists()


def test_a_log_with_odd_lines_and_a_damaged_list_of_starts_do_not_stop_a_run(place: Path) -> None:
    log = place / "run" / "metrics.jsonl"
    before = log.read_text()
    log.write_text(before + '3\nnull\n[1]\n{"step": "x"}\n{"step": ' + "9" * 5000 + '}\n{"step"')
    (place / "run" / "environment.json").write_text("[]")
    assert run([*AGAIN, "--device", "cpu"]) == 0
    assert log.read_text().startswith(before)
    assert all(isinstance(json.loads(line)["step"], int) for line in log.read_text().splitlines())
    assert len(json.loads((place / "run" / "environment.json").read_text())["starts"]) == 1
    assert (place / "run" / "environment.json.damaged").read_text() == "[]"


UNITS = np.eye(4, dtype=np.float32)[:2]
ARRAYS: list[tuple[str, dict[str, object], str]] = [
    ("keys of objects", {"keys": np.array(["a", None], object)}, "keys: an array of Python objects, which is not read"),
    ("one key", {"keys": np.array("a")}, "keys: an array of shape () for 2 vectors; expected one value for each"),
    ("numbers for keys", {"keys": np.array([1, 2])}, "row 0: keys: expected a text, got 1"),
    ("an empty key", {"keys": np.array(["a", ""])}, "row 1: keys: the key is empty"),
    ("texts too few", {"texts": np.array(["a"])}, "texts: an array of shape (1,) for 2 vectors"),
    ("text for a size", {"size": np.array(["x", "y"])}, "row 0: size: expected a whole number, got 'x'"),
    ("a kind of its own", {"kinds": np.array(["picture", "film"])}, "row 1: kinds: expected picture or sentence"),
    ("complex vectors", {"vectors": UNITS.astype(complex)}, "of complex128; expected real numbers"),
    ("words for vectors", {"vectors": np.array(["x", "y"])}, "expected real numbers"),
    ("vectors of nothing", {"vectors": np.ones((2, 0))}, "(2, 0) of float64; expected real numbers, (n, d)"),
    ("a number for vectors", {"vectors": np.array(1.0)}, "vectors: an array () of float64"),
]


@pytest.mark.parametrize("index", ["i.db", "made.db"])
@pytest.mark.parametrize(("changes", "expected"), [case[1:] for case in ARRAYS], ids=[case[0] for case in ARRAYS])
def test_arrays_of_the_wrong_kind(
    place: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], expected: str, index: str
) -> None:
    arrays: dict[str, object] = {"keys": np.array(["c", "d"]), "vectors": UNITS, "digest": np.array(["", ""])}
    arrays |= {"size": np.array([1, 2]), "changed": np.array([1, 2])}
    np.savez(place / "v.npz", **(arrays | changes))  # type: ignore[arg-type]
    one_sentence(capsys, ["index", "--index", index, "--import", "v.npz"], expected)


COLUMNS: list[tuple[str, dict[str, list[object]], str]] = [
    ("numbers for keys", {"key": [1, 2]}, "row 0: keys: expected a text, got 1"),
    ("a key of nothing", {"key": ["c", None]}, "row 1: keys: expected a text, got None"),
    ("bytes for keys", {"key": [b"\xff", b"b"]}, "row 0: keys: expected a text"),
    ("a number a vector", {"vector": [1.0, 2.0]}, "vector: a column of double; expected lists of numbers"),
    ("words in vectors", {"vector": [["x"] * 4] * 2}, "vector: a column of list"),
    ("lists of lists", {"vector": [[[1.0] * 4]] * 2}, "vector: a column of list"),
    ("tables for metadata", {"metadata": [{"a": 1}, {"a": 2}]}, "row 0: metadata: expected a text"),
    ("a list for metadata", {"metadata": ["[1]", ""]}, "metadata of 'c': expected a JSON object"),
    ("no size", {"size": [None, 1], "changed": [1, 1], "digest": ["", ""]}, "row 0: size: expected a whole number"),
]


@pytest.mark.parametrize(("changes", "expected"), [case[1:] for case in COLUMNS], ids=[case[0] for case in COLUMNS])
def test_columns_of_the_wrong_kind(
    place: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, list[object]], expected: str
) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns: dict[str, list[object]] = {"key": ["c", "d"], "vector": UNITS.tolist()}
    parquet.write_table(pyarrow.table(columns | changes), place / "v.parquet")
    one_sentence(capsys, ["index", "--index", "i.db", "--import", "v.parquet"], expected)


def test_a_note_of_another_program(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"key": ["c", "d"], "vector": UNITS.tolist()})
    for note in (b"x", b"[]", b'{"set_size": 0}', b'{"set_size": "2"}', b"\xff"):
        parquet.write_table(table.replace_schema_metadata({"diptych": note}), place / "v.parquet")
        one_sentence(capsys, ["index", "--index", "i.db", "--import", "v.parquet"], "how many vectors an entry has")


WRITERS = {
    "train": ["train", "small.toml", "--out", "there/run"],
    "ablate": ["ablate", "small.toml", "--out", "there/a"],
    "evaluate": ["evaluate", "run", "--out", "there/e"],
    "scenes": ["scenes", "there/s", "--count", "2"],
    "sheet": ["scenes", "s", "--count", "2", "--sheet", "there/x.png"],
    "explain": ["explain", "scene-0-1", "a red circle", "--model", "run", "--out", "there/x.html"],
    "export npz": ["index", "--index", "i.db", "--export", "there/x.npz"],
    "export parquet": ["index", "--index", "i.db", "--export", "there/x.parquet"],
    "import": ["index", "--index", "there/x.db", "--import", "v.npz"],
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_place_that_cannot_be_written(place: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (place / "there").write_text("a file where a folder is wished")
    np.savez(place / "v.npz", keys=np.array(["c", "d"]), vectors=UNITS)
    one_sentence(capsys, WRITERS[name], "there")
    assert (place / "there").read_text() == "a file where a folder is wished"


def small_files(arguments: list[str], folder: Path, most: int) -> subprocess.CompletedProcess[str]:
    """A command on a disk that takes no file of more than so many bytes."""
    # Not by a `preexec_fn`: a process with threads, as tests before may have left some, should not fork.
    limit = f"import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most})); "
    command = [sys.executable, "-c", limit + "runpy.run_module('diptych', run_name='__main__', alter_sys=True)"]
    return subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_a_full_disk_is_one_sentence_and_leaves_nothing_half_written(place: Path) -> None:
    done = small_files(["train", "small.toml", "--out", "new", "--device", "cpu"], place, 4000)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("diptych train: new")
    assert "cannot be written" in done.stderr
    assert not (place / "new" / "last").exists()
    assert not list((place / "new").rglob(".*.part"))


def test_whoever_reads_the_answer_may_stop(place: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    for target, said in ((writing, ""), (os.open("/dev/full", os.O_WRONLY), "No space left on device")):
        for arguments in (["--help"], ["data", "--help"]):
            command = [sys.executable, "-m", "diptych", *arguments]
            done = subprocess.run(command, stdout=target, stderr=subprocess.PIPE, text=True, check=False)
            assert done.returncode == 1
            assert "Traceback" not in done.stderr
            assert "Exception" not in done.stderr
            assert said in done.stderr
        os.close(target)


def test_too_little_memory_is_one_sentence(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError):
        torch.empty(10**15)
    one_sentence(capsys, [*TRAIN, "model.dim=100000000000"], "there is not enough memory for this")
