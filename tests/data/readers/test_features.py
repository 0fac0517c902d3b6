"""Local features in every format: precomp folders, TSV, npz and npy, HDF5; what is wrong with them; joining by name."""

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Regions
from diptych.data.read import read_collection
from diptych.data.readers.bottom_up import TsvFeatures, encoded_length
from diptych.data.readers.faults import Faults
from tests.data.making import (
    CAPTIONS,
    SPLITS,
    boxes,
    features,
    karpathy,
    texts,
    tsv_line,
    write_feature_file,
    write_json,
    write_pictures,
    write_precomp,
    write_tsv,
)
from tests.data.readers.test_captions import says


def row(collection: Collection, id: str) -> Regions:
    item = next(item for item in collection.items if item.id == id)
    assert collection.features is not None
    assert item.row is not None
    return collection.features[item.row]


# precomp folders


def test_precomp_tells_the_two_conventions_apart_by_count(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path / "f30k_precomp", {"train": 4, "dev": 3, "test": 2})
    collection = read_collection(folder)
    assert collection.name == "f30k_precomp"
    assert collection.format == "precomp folder"
    assert collection.splits == {"train": 4, "val": 3, "test": 2}
    assert [item.id for item in collection.items] == [str(1000 + i) for i in range(9)]
    assert texts(collection.items[5]) == [f"dev picture 1 caption {j}" for j in range(5)]
    assert collection.items[5].sentences[2].id == "1005#2"
    assert collection.features is not None
    assert collection.features.dim == 6
    assert len(collection.features) == 9
    dev = np.load(folder / "dev_ims.npy")
    assert np.array_equal(row(collection, "1005").vectors, dev[5])
    assert np.array_equal(row(collection, "1003").vectors, np.load(folder / "train_ims.npy")[3])


def test_precomp_ids_one_a_caption(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"dev": 2})
    (folder / "dev_ids.txt").write_text("".join(f"{id}\n" * 5 for id in (41, 42)))
    assert [item.id for item in read_collection(folder).items] == ["41", "42"]
    (folder / "dev_ids.txt").write_text("41\n" * 4 + "42\n" * 6)
    with pytest.raises(DiptychError, match=r"dev_ids\.txt: line 5: '42'; expected '41', 5 times in a row"):
        read_collection(folder)


def test_precomp_without_ids_or_with_ids_that_count_from_zero(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"train": 2, "test": 2}, ids=False)
    wanted = ["train/0", "train/1", "test/0", "test/1"]
    assert [item.id for item in read_collection(folder).items] == wanted
    for split in ("train", "test"):
        (folder / f"{split}_ids.txt").write_text("0\n1\n")
    assert [item.id for item in read_collection(folder).items] == wanted


def test_precomp_one_caption_a_picture(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"train": 3}, each=1)
    collection = read_collection(folder)
    assert [len(item.sentences) for item in collection.items] == [1, 1, 1]
    assert np.array_equal(row(collection, "1002").vectors, np.load(folder / "train_ims.npy")[2])


def test_precomp_test_is_a_part_of_testall(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"test": 2, "testall": 4})
    (folder / "testall_ids.txt").write_text("1000\n1001\n7\n8\n")
    collection = read_collection(folder)
    assert collection.splits == {"test": 2, "testall": 4}
    (folder / "train_ids.txt").write_text("7\n")
    np.save(folder / "train_ims.npy", features(1))
    (folder / "train_caps.txt").write_text("one\n")
    says(
        folder,
        f"{folder / 'testall_ids.txt'}: line 3: the id '7' is in two splits: 'testall' here, 'train' at "
        f"{folder / 'train_ids.txt'}: line 1",
    )


def test_precomp_reads_only_the_split_that_is_asked_for(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"train": 2, "dev": 3})
    (folder / "train_ims.npy").write_bytes(b"not an array")
    assert read_collection(folder, split="dev").splits == {"val": 3}
    assert read_collection(folder, split="val", dev_limit=2).splits == {"val": 2}
    with pytest.raises(DiptychError, match="no split 'test'; there is train, dev"):
        read_collection(folder, split="test")


def test_precomp_with_boxes_and_sizes(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"train": 2, "dev": 2})
    for split in ("train", "dev"):
        np.save(folder / f"{split}_boxes.npy", boxes(2))
        np.save(folder / f"{split}_ims_size.npy", np.array([[640, 480], [300, 200]]))
    found = row(read_collection(folder), "1003")
    assert found.boxes is not None
    assert np.array_equal(found.boxes, boxes(2)[1])
    assert found.size == (300, 200)


def test_precomp_captions_that_do_not_divide(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"train": 2, "dev": 2})
    for split, sentence in [
        (
            "train",
            "9 captions do not divide by the 2 rows of train_ims.npy; expected as many captions for every picture",
        ),
        ("dev", "9 captions do not divide by the 10 rows of dev_ims.npy; expected as many captions for every picture"),
    ]:
        path = folder / f"{split}_caps.txt"
        whole = path.read_text()
        path.write_text("\n".join(whole.splitlines()[:9]))
        with pytest.raises(DiptychError) as error:
            read_collection(folder)
        assert str(error.value) == f"{path}: {sentence}"
        kept = read_collection(folder, skip_bad=True)
        assert len(kept) == 2
        assert [str(problem) for problem in kept.problems] == [f"{path}: {sentence}"]
        path.write_text(whole)


def test_precomp_repeated_rows_that_do_not_divide(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"dev": 2})
    np.save(folder / "dev_ims.npy", np.load(folder / "dev_ims.npy")[:5].repeat(2, 0)[:9])
    path = folder / "dev_caps.txt"
    path.write_text("\n".join(path.read_text().splitlines()[:9]))
    with pytest.raises(DiptychError, match=r"dev_caps\.txt: 9 captions do not divide by 5, the times that dev_ims"):
        read_collection(folder)


def test_precomp_empty_caption_names_its_line(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"train": 2})
    path = folder / "train_caps.txt"
    lines = path.read_text().split("\n")
    lines[6] = "  "
    path.write_text("\n".join(lines))
    says(folder, f"{path}: line 7: the caption is empty")
    assert [len(i.sentences) for i in read_collection(folder, skip_bad=True).items] == [5, 4]


def test_truncated_npy_is_told_and_its_whole_rows_are_kept(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"train": 4, "test": 1})
    path = folder / "train_ims.npy"
    whole = np.load(path)
    path.write_bytes(path.read_bytes()[:-100])
    says(
        folder,
        f"{path}: truncated: the header promises (4, 4, 6) float32, 384 bytes, but 284 are there (2 whole rows)",
    )
    kept = read_collection(folder, skip_bad=True)
    assert kept.splits == {"train": 2, "test": 1}
    assert np.array_equal(row(kept, "1001").vectors, whole[1])
    assert np.array_equal(row(kept, "1004").vectors, np.load(folder / "test_ims.npy")[0])


def test_a_npy_cut_in_its_header(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"train": 2})
    path = folder / "train_ims.npy"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DiptychError, match=r"train_ims\.npy: not a whole npy file"):
        read_collection(folder)


def test_pickled_arrays_are_refused(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"train": 2})
    np.save(folder / "train_ims.npy", np.array([{"a": 1}, {}], dtype=object), allow_pickle=True)
    with pytest.raises(DiptychError, match=r"train_ims\.npy: holds object; .*pickled objects are never loaded"):
        read_collection(folder)


def test_precomp_wrong_dimension(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"train": 2, "dev": 2})
    np.save(folder / "dev_ims.npy", features(2, dim=5))
    says(folder, f"{folder / 'dev_ims.npy'}: vectors of dimension 5; expected 6 as in the other splits")
    assert read_collection(folder, skip_bad=True).splits == {"train": 2}


def test_precomp_missing_captions(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"train": 2, "dev": 2})
    (folder / "dev_caps.txt").unlink()
    with pytest.raises(DiptychError, match=r"dev_caps\.txt: no such file"):
        read_collection(folder)


def test_precomp_wrong_number_of_ids(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path, {"train": 2})
    (folder / "train_ids.txt").write_text("1\n2\n3\n")
    with pytest.raises(DiptychError, match=r"train_ids\.txt: 3 ids; expected 2, one a picture, or 10, one a caption"):
        read_collection(folder)


def test_precomp_captions_alone_with_file_names(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path / "p", {"train": 2})
    (folder / "train_ims.npy").unlink()
    write_json(folder / "id_mapping.json", {"1000": "x/one.jpg", "1001": "two.jpg"})
    pictures = write_pictures(tmp_path / "q", ["one.jpg", "two.jpg"])
    collection = read_collection(folder, images=pictures)
    assert [item.path for item in collection.items] == [str(pictures / "one.jpg"), str(pictures / "two.jpg")]
    assert collection.features is None


def test_memory_maps_are_not_carried_when_pickled(tmp_path: Path) -> None:
    folder = tmp_path
    np.save(folder / "train_ims.npy", np.zeros((50, 36, 100), np.float32))
    (folder / "train_caps.txt").write_text("a caption\n" * 50)
    collection = read_collection(folder)
    row(collection, "train/3")
    data = pickle.dumps(collection)
    assert len(data) < 50_000
    assert row(pickle.loads(data), "train/3").vectors.shape == (36, 100)


# bottom-up TSV


def test_tsv(tmp_path: Path) -> None:
    collection = read_collection(write_tsv(tmp_path / "boxes.tsv"))
    assert collection.format == "bottom-up TSV"
    found = row(collection, "b")
    assert np.array_equal(found.vectors, features()[1])
    assert found.boxes is not None
    assert np.array_equal(found.boxes, boxes()[1])
    assert found.size == (640, 480)


def test_tsv_with_a_header_windows_lines_and_other_numbers_of_boxes(tmp_path: Path) -> None:
    lines = ["image_id\timage_w\timage_h\tnum_boxes\tboxes\tfeatures\n"]
    sizes = [3, 1, 7, 2, 2, 100]
    values = [features(1, n, seed=n)[0] for n in sizes]
    lines += [tsv_line(str(i), v, boxes(1, len(v))[0]) for i, v in enumerate(values)]
    path = tmp_path / "boxes.tsv"
    path.write_bytes("".join(lines).replace("\n", "\r\n").encode())
    collection = read_collection(path)
    for i, value in enumerate(values):
        assert np.array_equal(row(collection, str(i)).vectors, value)


def test_tsv_without_a_line_end_at_its_end(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "boxes.tsv")
    path.write_text(path.read_text().rstrip("\n"))
    assert np.array_equal(row(read_collection(path), "c").vectors, features()[2])


def test_tsv_with_objects(tmp_path: Path) -> None:
    path = tmp_path / "boxes.tsv"
    cells = [line.split("\t") for line in write_tsv(path).read_text().splitlines()]
    path.write_text("".join("\t".join([c[0], "480", "640", "x", "x", "x", "x", *c[3:]]) + "\n" for c in cells))
    found = row(read_collection(path), "b")
    assert np.array_equal(found.vectors, features()[1])
    assert found.size == (640, 480)


def test_several_tsv_files(tmp_path: Path) -> None:
    write_tsv(tmp_path / "boxes.tsv.0", ["a", "b"])
    write_tsv(tmp_path / "boxes.tsv.1", ["c"])
    collection = read_collection(tmp_path)
    assert [item.id for item in collection.items] == ["a", "b", "c"]
    assert np.array_equal(row(collection, "c").vectors, features()[0])
    (tmp_path / "boxes.tsv.1").write_text(tsv_line("c", features(1, dim=5)[0], boxes(1)[0]))
    with pytest.raises(DiptychError, match=r"boxes\.tsv\.1: line 1: vectors of dimension 5; expected 6 as at .*tsv\.0"):
        read_collection(tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda c: [*c[:5], c[5][:-8]],
            "PATH: line 2: features: 120 characters; no whole vectors for 4 boxes in base64",
        ),
        (lambda c: [*c[:4], c[4][:-4], c[5]], "PATH: line 2: boxes: 84 characters; expected 88 for 4 boxes in base64"),
        (lambda c: [*c[:3], "four", *c[4:]], "PATH: line 2: num_boxes: expected a number, got 'four'"),
        (lambda c: [*c[:1], "wide", *c[2:]], "PATH: line 2: expected numbers in image_w, image_h and num_boxes"),
        (lambda c: c[:5], "PATH: line 2: 5 fields; expected 6: image_id, image_w, image_h, num_boxes, boxes, features"),
        (lambda c: [*c[:3], "0", "", ""], "PATH: line 2: num_boxes: 0; expected at least one box"),
        (lambda c: ["a", *c[1:]], "PATH: line 2: the id 'a' is there twice: first at PATH: line 1"),
        (
            lambda c: tsv_line("b", features(1, dim=5)[0], boxes(1)[0]).rstrip("\n").split("\t"),
            "PATH: line 2: features: vectors of dimension 5; expected 6",
        ),
    ],
)
def test_bad_tsv_lines(tmp_path: Path, change: Any, sentence: str) -> None:
    path = write_tsv(tmp_path / "boxes.tsv")
    lines = path.read_text().splitlines()
    lines[1] = "\t".join(change(lines[1].split("\t")))
    path.write_text("\n".join(lines) + "\n")
    says(path, sentence)
    kept = read_collection(path, skip_bad=True)
    assert [item.id for item in kept.items] == ["a", "c"]
    assert np.array_equal(row(kept, "c").vectors, features()[2])


def test_base64_that_is_none_is_told_when_it_is_read(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "boxes.tsv")
    lines = path.read_text().splitlines()
    lines[1] = lines[1][:-20] + "!" + lines[1][-19:]
    path.write_text("\n".join(lines) + "\n")
    collection = read_collection(path)
    with pytest.raises(DiptychError, match=r"boxes\.tsv: line 2: features: not valid base64"):
        row(collection, "b")
    with pytest.raises(DiptychError, match=r"boxes\.tsv: line 2 \(picture 'b'\): features: not valid base64"):
        read_collection(path, deep=True)


floats = st.floats(width=32, allow_nan=False)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 9), st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_tsv_round_trip(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, dim: int, counts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("tsv") / "boxes.tsv"
    written = [
        (
            data.draw(arrays(np.float32, (n, dim), elements=floats)),
            data.draw(arrays(np.float32, (n, 4), elements=floats)),
        )
        for n in counts
    ]
    path.write_text("".join(tsv_line(f"p{i}", v, b) for i, (v, b) in enumerate(written)))
    found = TsvFeatures(path, Faults())
    assert found.dim == dim
    assert found.ids == [f"p{i}" for i in range(len(counts))]
    for i, (vectors, box) in enumerate(written):
        assert found[i].vectors.tobytes() == vectors.tobytes()
        assert found[i].boxes is not None
        assert np.asarray(found[i].boxes).tobytes() == box.tobytes()


@given(st.integers(0, 200))
def test_encoded_length(count: int) -> None:
    import base64

    assert encoded_length(count) == len(base64.b64encode(bytes(4 * count)))


# npz and npy per picture


@pytest.mark.parametrize(("vectors", "corners"), [("x", "bbox"), ("features", "boxes"), ("feat", "bboxes")])
def test_npz_per_picture(tmp_path: Path, vectors: str, corners: str) -> None:
    for name, v, b in zip("abc", features(), boxes(), strict=True):
        np.savez(tmp_path / f"{name}.npz", **{vectors: v, corners: b, "image_w": 640, "image_h": np.array(480)})
    collection = read_collection(tmp_path)
    assert collection.format == "features per picture"
    found = row(collection, "b")
    assert np.array_equal(found.vectors, features()[1])
    assert found.boxes is not None
    assert np.array_equal(found.boxes, boxes()[1])
    assert found.size == (640, 480)


@pytest.mark.parametrize(
    ("shape", "wanted"), [((6,), (1, 6)), ((4, 6), (4, 6)), ((2, 3, 6), (6, 6)), ((6, 2, 2), (4, 6))]
)
def test_npy_per_picture(tmp_path: Path, shape: tuple[int, ...], wanted: tuple[int, int]) -> None:
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.save(tmp_path / "a.npy", value)
    found = row(read_collection(tmp_path), "a")
    assert found.vectors.shape == wanted
    if shape == (6, 2, 2):
        assert np.array_equal(found.vectors[1], value[:, 0, 1])


def test_bad_files_per_picture(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", features()[0])
    np.save(tmp_path / "b.npy", features(dim=5)[0])
    np.savez(tmp_path / "c.npz", other=features()[0])
    np.save(tmp_path / "d.npy", features()[0])
    (tmp_path / "d.npy").write_bytes((tmp_path / "d.npy").read_bytes()[:-9])
    np.savez(tmp_path / "e.npz", x=features()[0], bbox=boxes()[0][:3])
    (tmp_path / "f.npz").write_bytes(b"PK nothing")
    (tmp_path / "g.npy").touch()
    says(tmp_path, f"{tmp_path / 'g.npy'}: the file is empty")
    kept = read_collection(tmp_path, skip_bad=True, deep=True)
    assert [item.id for item in kept.items] == ["a"]
    told = {problem.where.split(" ")[0].rpartition("/")[2]: problem.what for problem in kept.problems}
    assert told["b.npy"] == "vectors of dimension 5; expected 6 as in a.npy"
    assert told["c.npz"] == "has other; expected the vectors under 'features', 'x' or 'feat'"
    assert told["d.npy"].startswith("not a whole array file")
    assert told["e.npz"] == "the boxes have shape (3, 4); expected (4, 4)"
    assert told["f.npz"].startswith("not a whole array file")


# HDF5


def write_hdf5(path: Path, layout: str) -> Path:
    with h5py.File(path, "w") as file:
        if layout == "stacked":
            file["features"], file["boxes"] = features(), boxes()
            file["ids"] = [b"a", b"b", b"c"]
            file["image_w"], file["image_h"] = [640] * 3, [480] * 3
        elif layout == "padded":
            padded = np.concatenate([features(), np.zeros((3, 2, 6), np.float32)], 1)
            file["image_features"], file["num_boxes"] = padded, [4, 4, 4]
            file["bbox"] = np.concatenate([boxes(), np.zeros((3, 2, 4), np.float32)], 1)
            file["image_id"] = ["a", "b", "c"]
        elif layout == "ranges":
            file["image_features"], file["image_bb"] = features().reshape(12, 6), boxes().reshape(12, 4)
            file["pos_boxes"], file["ids"] = [[0, 4], [4, 8], [8, 12]], [b"a", b"b", b"c"]
        for name, v, b in zip("abc", features(), boxes(), strict=True):
            if layout == "groups":
                group = file.create_group(name)
                group["x"], group["bbox"] = v, b
                group.attrs["image_w"], group.attrs["image_h"] = 640, 480
            elif layout == "suffixes":
                file[f"{name}_features"], file[f"{name}_boxes"] = v, b
            elif layout == "datasets":
                file[name] = v
    return path


@pytest.mark.parametrize("layout", ["stacked", "padded", "ranges", "groups", "suffixes", "datasets"])
def test_hdf5(tmp_path: Path, layout: str) -> None:
    collection = read_collection(write_hdf5(tmp_path / "f.h5", layout))
    assert collection.format == "HDF5"
    assert collection.features is not None
    assert collection.features.dim == 6
    found = row(pickle.loads(pickle.dumps(collection)), "b")
    assert np.array_equal(found.vectors, features()[1])
    if layout != "datasets":
        assert found.boxes is not None
        assert np.array_equal(found.boxes, boxes()[1])
    if layout in ("stacked", "groups"):
        assert found.size == (640, 480)


def test_hdf5_ids_in_a_text_beside_it(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["features"] = features()
    assert [i.id for i in read_collection(tmp_path / "f.h5").items] == ["0", "1", "2"]
    (tmp_path / "f_ids.txt").write_text("a\nb\nc\n")
    assert [i.id for i in read_collection(tmp_path / "f.h5").items] == ["a", "b", "c"]


def test_bad_hdf5(tmp_path: Path) -> None:
    path = tmp_path / "one.h5"
    with h5py.File(path, "w") as file:
        file["features"], file["ids"] = features(), [b"a", b"b"]
    with pytest.raises(DiptychError, match=r"one\.h5: ids: 2 ids; expected 3, as in features"):
        read_collection(path)
    path = tmp_path / "two.h5"
    with h5py.File(path, "w") as file:
        file["features"], file["boxes"] = features(), boxes(2)
    with pytest.raises(DiptychError, match=r"two\.h5: boxes: 2 rows; expected 3, as in features"):
        read_collection(path)
    path = tmp_path / "three.h5"
    with h5py.File(path, "w") as file:
        file["a"], file["b"] = features()[0], features(dim=5)[0]
    says(path, f"{path}: b (picture 'b'): vectors of dimension 5; expected 6", deep=True)
    path = tmp_path / "four.h5"
    with h5py.File(path, "w") as file:
        file.create_group("train")["features"] = features()
    with pytest.raises(DiptychError, match=r"four\.h5: train: has features; expected one dataset of features for all"):
        read_collection(path)
    path = tmp_path / "five.h5"
    path.write_bytes(b"nothing")
    with pytest.raises(DiptychError, match=r"five\.h5: not a readable HDF5 file"):
        read_collection(path)


# joining


@pytest.mark.parametrize("kind", ["tsv", "npz", "hdf5", "npy", "npy with ids", "precomp", "ours"])
def test_captions_with_features_from_elsewhere(tmp_path: Path, kind: str) -> None:
    captions = write_json(tmp_path / "dataset.json", karpathy())
    order = ["c", "a", "b"]
    if kind == "tsv":
        source = write_tsv(tmp_path / "f.tsv", order)
    elif kind == "npz":
        source = tmp_path / "features"
        source.mkdir()
        for name, v in zip(order, features(), strict=True):
            np.savez(source / f"{name}.jpg.npz", x=v)
    elif kind == "hdf5":
        source = tmp_path / "f.h5"
        with h5py.File(source, "w") as file:
            file["features"], file["ids"] = features(), [f"{name}.jpg".encode() for name in order]
    elif kind == "ours":
        source = write_feature_file(tmp_path / "features.bin", [f"{name}.jpg" for name in order])
    elif kind == "precomp":
        source = write_precomp(tmp_path / "p", {"train": 3})
        np.save(source / "train_ims.npy", features())
        (source / "train_ids.txt").write_text("c\na\nb\n")
    else:
        source = tmp_path / "f.npy"
        np.save(source, features() if kind == "npy with ids" else features()[[1, 2, 0]])
        if kind == "npy with ids":
            (tmp_path / "f_ids.txt").write_text("c\na\nb\n")
    collection = read_collection(captions, features=source)
    assert [item.id for item in collection.items] == ["a", "b", "c"]
    assert np.array_equal(row(collection, "a").vectors, features()[1])
    assert np.array_equal(row(collection, "c").vectors, features()[0])


def test_features_first_and_captions_second_give_the_same(tmp_path: Path) -> None:
    captions, source = write_json(tmp_path / "dataset.json", karpathy()), write_tsv(tmp_path / "f.tsv")
    one, other = read_collection(captions, features=source), read_collection(source, captions=captions)
    assert [(i.id, i.split, i.row, i.sentences) for i in one.items] == [
        (i.id, i.split, i.row, i.sentences) for i in other.items
    ]
    both = read_collection(tmp_path)
    assert [(i.id, i.row) for i in both.items] == [("a", 0), ("b", 1), ("c", 2)]
    assert both.format == "Karpathy JSON + bottom-up TSV"


def test_coco_numbers_find_coco_file_names(tmp_path: Path) -> None:
    data = karpathy()
    for number, image in zip((391895, 60623, 483108), data["images"], strict=True):
        image.update(cocoid=number, filename=f"COCO_val2014_{number:012d}.jpg")
    captions = write_json(tmp_path / "dataset.json", data)
    names = ["COCO_val2014_000000060623", "000000391895.jpg", "483108"]
    collection = read_collection(captions, features=write_tsv(tmp_path / "f.tsv", names))
    assert [item.row for item in collection.items] == [1, 0, 2]


def test_a_picture_without_features(tmp_path: Path) -> None:
    captions = write_json(tmp_path / "k" / "dataset.json", karpathy())
    source = write_tsv(tmp_path / "f.tsv", ["a", "b"])
    says(captions, f"{source}: no features for the picture 'c' (c.jpg)", features=source)
    assert [i.id for i in read_collection(captions, features=source, skip_bad=True).items] == ["a", "b"]
    says(source, f"{captions}: no features for 'c' (c.jpg) in PATH", captions=captions)


def test_features_without_ids_that_do_not_fit(tmp_path: Path) -> None:
    captions = write_json(tmp_path / "dataset.json", karpathy())
    np.save(tmp_path / "f.npy", features(4))
    with pytest.raises(DiptychError, match="4 rows without ids; expected 3, one a picture, or 6, one a caption"):
        read_collection(captions, features=tmp_path / "f.npy")
    np.save(tmp_path / "f.npy", features(3).repeat(2, 0))
    collection = read_collection(captions, features=tmp_path / "f.npy")
    assert [item.row for item in collection.items] == [0, 2, 4]


def test_features_that_are_none(tmp_path: Path) -> None:
    captions = write_json(tmp_path / "dataset.json", karpathy())
    with pytest.raises(DiptychError, match=r"dataset\.json: Karpathy JSON: no local features in it"):
        read_collection(captions, features=captions)
    with pytest.raises(DiptychError, match="gone: no such file or folder"):
        read_collection(captions, features=tmp_path / "gone")


def test_precomp_against_the_captions_that_it_came_from(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    for split, name in {"train": "a", "dev": "b", "test": "c"}.items():
        np.save(folder / f"{split}_ims.npy", features(1))
        (folder / f"{split}_ids.txt").write_text(f"{name}\n")
        (folder / f"{split}_caps.txt").write_text("\n".join(t.lower().rstrip(".") for t in CAPTIONS[name]))
    captions = write_json(tmp_path / "dataset.json", karpathy())
    collection = read_collection(folder, captions=captions)
    assert {i.id: i.split for i in collection.items} == SPLITS
    assert texts(collection.items[0]) == CAPTIONS["a"]
    assert collection.items[0].sentences[0].id == "100"
    (folder / "dev_caps.txt").write_text("other\nwords\n")
    with pytest.raises(DiptychError, match=r"picture 'b': .*p and .*dataset\.json disagree on its captions: 'other'"):
        read_collection(folder, captions=captions)
