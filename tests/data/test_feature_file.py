import json
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.common.errors import DiptychError
from diptych.data.collection import Regions
from diptych.data.feature_file import FeatureFile, FeatureSource, cell_boxes, is_feature_file, part_folder
from diptych.data.feature_writer import FeatureWriter

GRID = FeatureSource("net", 64, dim=3, grid=(2, 2), weights="w", package="p")
DETECTED = FeatureSource("detector", 64, dim=3, precision="single", regions=5)


def cells(seed: int) -> Regions:
    return Regions(np.random.default_rng(seed).normal(size=(4, 3)), None, (40 + seed, 20))


def detected(seed: int, count: int) -> Regions:
    rng = np.random.default_rng(seed)
    return Regions(
        rng.normal(size=(count, 3)), rng.uniform(0, 40, (count, 4)), (40, 20 + seed), rng.uniform(size=count)
    )


def write(path: Path, source: FeatureSource, records: dict[str, Regions]) -> FeatureFile:
    writer = FeatureWriter(path, source)
    for id, regions in records.items():
        writer.add(id, regions)
    return writer.finish()


def test_a_grid_comes_back_in_half_precision_with_the_boxes_of_its_cells(tmp_path: Path) -> None:
    records = {f'ä {i}\u2028"': cells(i) for i in range(3)}
    write(tmp_path / "a.features", GRID, records)
    file = FeatureFile(tmp_path / "a.features")
    assert (len(file), file.dim, file.source, file.ids) == (3, 3, GRID, list(records))
    assert file.rows == {id: row for row, id in enumerate(records)}
    assert file.lengths.tolist() == [4, 4, 4]
    for row, regions in enumerate(records.values()):
        found = file[row]
        assert found.vectors.dtype == np.float16
        np.testing.assert_array_equal(found.vectors, regions.vectors.astype(np.float16))
        assert (found.size, found.scores) == (regions.size, None)
        np.testing.assert_array_equal(found.boxes, cell_boxes((2, 2), regions.size or (0, 0)))  # type: ignore[arg-type]
    np.testing.assert_array_equal(file[-1].vectors, file[2].vectors)
    file.verify()
    assert not part_folder(file.path).exists()
    with pytest.raises(IndexError):
        file[3]


@settings(max_examples=20, deadline=None)
@given(counts=st.lists(st.integers(1, 6), min_size=1, max_size=8))
def test_any_number_of_regions_comes_back_exactly(tmp_path_factory: pytest.TempPathFactory, counts: list[int]) -> None:
    records = {str(i): detected(i, count) for i, count in enumerate(counts)}
    file = write(tmp_path_factory.mktemp("f") / "a", DETECTED, records)
    file.verify()
    assert file.lengths.tolist() == counts
    for row, regions in enumerate(records.values()):
        found = file[row]
        np.testing.assert_array_equal(found.vectors, regions.vectors.astype(np.float32))
        np.testing.assert_array_equal(found.boxes, regions.boxes.astype(np.float32))  # type: ignore[arg-type,union-attr]
        np.testing.assert_array_equal(found.scores, regions.scores.astype(np.float32))  # type: ignore[arg-type,union-attr]
        assert found.size == regions.size


def test_vectors_are_mapped_not_read(tmp_path: Path) -> None:
    file = write(tmp_path / "a", GRID, {"a": cells(0), "b": cells(1)})
    assert np.shares_memory(file[1].vectors, file.vectors)
    assert not file.vectors.flags.writeable


def test_a_copy_in_another_process_maps_the_same_file(tmp_path: Path) -> None:
    file = write(tmp_path / "a", GRID, {"a": cells(0)})
    data = pickle.dumps(file)
    assert len(data) < 500
    np.testing.assert_array_equal(pickle.loads(data)[0].vectors, file[0].vectors)


def test_cells_cover_the_picture_in_reading_order() -> None:
    assert cell_boxes((2, 3), (60, 20)).tolist() == [
        [0, 0, 20, 10], [20, 0, 40, 10], [40, 0, 60, 10], [0, 10, 20, 20], [20, 10, 40, 20], [40, 10, 60, 20],
    ]  # fmt: skip


def test_work_goes_on_after_a_kill_and_gives_the_same_file(tmp_path: Path) -> None:
    records = {str(i): detected(i, 1 + i % 5) for i in range(6)}
    whole = write(tmp_path / "whole", DETECTED, records)
    script = textwrap.dedent(
        """
        import os, sys
        from pathlib import Path
        from diptych.data.feature_writer import FeatureWriter
        from tests.data.test_feature_file import DETECTED, detected
        writer = FeatureWriter(Path(sys.argv[1]), DETECTED)
        for i in range(5):
            writer.add(str(i), detected(i, 1 + i % 5))
            if i == 2:
                writer.commit()
        writer._vectors.flush()
        os.kill(os.getpid(), 9)
        """
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path / "a")], cwd=Path(__file__).parents[2])
    assert killed.returncode == -9
    assert not (tmp_path / "a").exists()
    with pytest.raises(DiptychError, match=r"no such feature file; .* was begun"):
        FeatureFile(tmp_path / "a")
    writer = FeatureWriter(tmp_path / "a", DETECTED)
    assert writer.done == {"0", "1", "2"}  # what was not committed is done again
    for id in list(records)[3:]:
        writer.add(id, records[id])
    resumed = writer.finish()
    assert resumed.path.read_bytes() == whole.path.read_bytes()
    assert resumed.checksum == whole.checksum


@pytest.mark.parametrize("damage", ["torn journal", "garbage journal", "short vectors", "short boxes", "half finished"])
def test_what_the_journal_does_not_vouch_for_is_done_again(tmp_path: Path, damage: str) -> None:
    records = {str(i): detected(i, 2) for i in range(4)}
    whole = write(tmp_path / "whole", DETECTED, records)
    path = tmp_path / "a"
    writer = FeatureWriter(path, DETECTED)
    for id in ("0", "1", "2"):
        writer.add(id, records[id])
    writer.close()
    folder = part_folder(path)
    if damage == "torn journal":
        (folder / "journal").write_bytes((folder / "journal").read_bytes()[:-4])
    elif damage == "garbage journal":
        (folder / "journal").write_bytes((folder / "journal").read_bytes() + b"\0\0\0\n\0\n")
    elif damage == "half finished":
        (folder / "vectors").write_bytes((folder / "vectors").read_bytes() + b"arrays and half an index")
    else:
        name = damage.split()[1]
        (folder / name).write_bytes((folder / name).read_bytes()[:-3])
    writer = FeatureWriter(path, DETECTED)
    assert writer.done >= {"0", "1"}
    for id in sorted(set(records) - writer.done):
        writer.add(id, records[id])
    assert writer.finish().path.read_bytes() == whole.path.read_bytes()


def test_going_on_with_another_source_is_refused(tmp_path: Path) -> None:
    writer = FeatureWriter(tmp_path / "a", GRID)
    writer.add("a", cells(0))
    writer.close()
    with pytest.raises(DiptychError, match="begun with backbone 'net' and 'detector', dim"):
        FeatureWriter(tmp_path / "a", FeatureSource("detector", 64, dim=5, grid=(2, 2), weights="w", package="p"))
    FeatureWriter(tmp_path / "a", GRID).close()  # the refusal left nothing locked


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    writer = FeatureWriter(tmp_path / "a", GRID)
    with pytest.raises(DiptychError, match="another process is writing"):
        FeatureWriter(tmp_path / "a", GRID)
    writer.close()


def test_bad_features_are_named(tmp_path: Path) -> None:
    writer = FeatureWriter(tmp_path / "a", GRID)
    writer.add("fine", cells(0))
    size = (4, 4)
    for regions, message in [
        (Regions(np.full((4, 3), np.nan), None, size), "bad: features that are NaN or infinite"),
        (Regions(np.full((4, 3), 1e5), None, size), "bad: features that are too large for half precision"),
        (Regions(np.zeros((4, 2)), None, size), r"bad: features of shape \(4, 2\); expected \(regions, 3\)"),
        (Regions(np.zeros((0, 3)), None, size), "bad: features of shape"),
        (Regions(np.zeros((4, 3))), "bad: features without the picture's size"),
    ]:
        with pytest.raises(DiptychError, match=message):
            writer.add("bad", regions)
    with pytest.raises(DiptychError, match="fine: its features are already in"):
        writer.add("fine", cells(0))
    assert writer.finish().ids == ["fine"]
    with pytest.raises(DiptychError, match="no picture's features"):
        FeatureWriter(tmp_path / "b", GRID).finish()


def test_truncated_and_damaged_files_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a", DETECTED, {"a": detected(0, 3), "b": detected(1, 2)}).path
    data = path.read_bytes()
    bad = tmp_path / "bad"
    for end in (len(data) - 1, len(data) // 2, 70):
        bad.write_bytes(data[:end])
        with pytest.raises(DiptychError, match=f"bad: truncated: it ends at byte {end}"):
            FeatureFile(bad)
    bad.write_bytes(b"something else" * 20)
    with pytest.raises(DiptychError, match="not a feature file"):
        FeatureFile(bad)
    bad.write_bytes(b"")
    with pytest.raises(DiptychError, match="not a feature file"):
        FeatureFile(bad)
    bad.write_bytes(data.replace(b'"ids": ["a"', b'"ids": ["c"'))
    with pytest.raises(DiptychError, match="damaged: its index"):
        FeatureFile(bad)
    with pytest.raises(DiptychError, match="no such feature file"):
        FeatureFile(tmp_path / "none")


def test_every_flipped_byte_of_the_data_is_found(tmp_path: Path) -> None:
    file = write(tmp_path / "a", DETECTED, {"a": detected(0, 3), "b": detected(1, 2)})
    data = file.path.read_bytes()
    places = {64: "'a'", 64 + 3 * 12: "'b'"}
    places |= {file._arrays[name]["place"]: name for name in ("sizes", "checks", "boxes", "scores")}
    for place, name in places.items():
        file.path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(DiptychError, match=f"damaged: .*{name}"):
            FeatureFile(file.path).verify()


def test_feature_files_are_recognised(tmp_path: Path) -> None:
    file = write(tmp_path / "a", GRID, {"a": cells(0)})
    (tmp_path / "b").write_text("no")
    assert is_feature_file(file.path)
    assert not is_feature_file(tmp_path / "b")
    assert not is_feature_file(tmp_path)
    assert not is_feature_file(tmp_path / "none")


def test_the_journal_is_written_after_what_it_vouches_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = FeatureWriter(tmp_path / "a", GRID)
    order = []
    real = os.fsync

    files = {"vectors": writer._vectors, "boxes": writer._boxes, "journal": writer._lines}

    def recorded(descriptor: int) -> None:
        order.extend(name for name, file in files.items() if file.fileno() == descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    writer.add("a", cells(0))
    writer.commit()
    assert order == ["vectors", "boxes", "journal"]
    assert json.loads((writer.folder / "journal").read_text())[:2] == ["a", 4]
    writer.close()
