"""Karpathy's and COCO's JSON, tables, and captions files that must agree."""

import json
from pathlib import Path

import pytest

from diptych.common.errors import DiptychError
from diptych.data.read import read_collection
from diptych.data.scenes.write import write_scenes
from tests.data.making import CAPTIONS, coco, karpathy, picture, texts, write_json, write_pictures


def says(path: Path, sentence: str, **options: object) -> None:
    """Reading fails with exactly this sentence, where PATH stands for the path; with skip_bad it is listed."""
    wanted = sentence.replace("PATH", str(path))
    with pytest.raises(DiptychError) as error:
        read_collection(path, **options)  # type: ignore[arg-type]
    assert str(error.value) == wanted
    kept = read_collection(path, skip_bad=True, **options)  # type: ignore[arg-type]
    assert wanted in [str(problem) for problem in kept.problems]


def test_karpathy(tmp_path: Path) -> None:
    data = karpathy()
    data["images"][0].update(split="restval", cocoid=7, filepath="val2014")
    collection = read_collection(write_json(tmp_path / "dataset.json", data))
    assert collection.name == "tiny"
    assert collection.format == "Karpathy JSON"
    assert collection.splits == {"train": 1, "val": 1, "test": 1}
    first, second, _ = collection.items
    assert first.id == "7"
    assert first.metadata == {
        "filename": "val2014/a.jpg", "imgid": "0", "cocoid": "7", "source_split": "restval",
    }  # fmt: skip
    assert [s.id for s in second.sentences] == ["102", "103"]
    assert texts(second) == CAPTIONS["b"]
    assert second.id == "b"
    assert second.open is None
    assert [i.id for i in read_collection(tmp_path / "dataset.json", split="restval").items] == ["7"]


def test_karpathy_takes_tokens_where_there_is_no_raw_text(tmp_path: Path) -> None:
    data = karpathy()
    data["images"][0]["sentences"][0] = {"tokens": ["a", "red", "boat"]}
    item = read_collection(write_json(tmp_path / "d.json", data)).items[0]
    assert texts(item)[0] == "a red boat"
    assert item.sentences[0].id == "a#0"


def test_karpathy_file_names_that_differ_in_their_suffix_alone_stay_apart(tmp_path: Path) -> None:
    data = karpathy()
    data["images"][1]["filename"] = "a.png"
    assert [i.id for i in read_collection(write_json(tmp_path / "d.json", data)).items] == ["a.jpg", "a.png", "c.jpg"]


@pytest.mark.parametrize("place", ["", "images"])
def test_pictures_near_the_captions_file_are_found(tmp_path: Path, place: str) -> None:
    write_pictures(tmp_path / place)
    collection = read_collection(write_json(tmp_path / "dataset.json", karpathy()))
    assert all(item.open is not None and item.open().size == (12, 8) for item in collection.items)


def test_pictures_in_the_folder_that_the_file_names(tmp_path: Path) -> None:
    write_pictures(tmp_path / "val2014")
    data = karpathy()
    for image in data["images"]:
        image["filepath"] = "val2014"
    collection = read_collection(write_json(tmp_path / "annotations" / "dataset.json", data))
    assert collection.items[2].path == str(tmp_path / "val2014" / "c.jpg")


def test_a_missing_picture_is_told_once_others_are_there(tmp_path: Path) -> None:
    write_pictures(tmp_path, ["a.jpg", "c.jpg"])
    path = write_json(tmp_path / "dataset.json", karpathy())
    says(path, f"{tmp_path / 'b.jpg'}: no such picture; expected by dataset.json for the id 'b'")
    assert [i.id for i in read_collection(path, skip_bad=True).items] == ["a", "c"]


def test_a_missing_picture_in_a_folder_that_was_named(tmp_path: Path) -> None:
    path = write_json(tmp_path / "k" / "dataset.json", karpathy())
    folder = write_pictures(tmp_path / "p" / "deep", ["x/a.jpg", "b.png"]).parent
    says(path, f"PATH: no picture for 'c' (c.jpg) in {folder}", images=folder)
    kept = read_collection(path, images=folder, skip_bad=True)
    assert [i.path for i in kept.items] == [str(folder / "deep/x/a.jpg"), str(folder / "deep/b.png")]


def test_coco(tmp_path: Path) -> None:
    write_pictures(tmp_path / "val2017")
    path = write_json(tmp_path / "annotations" / "captions_val2017.json", coco())
    collection = read_collection(path)
    assert collection.format == "COCO captions JSON"
    assert collection.splits == {"val": 3}
    assert [i.id for i in collection.items] == ["1", "2", "3"]
    assert [s.id for s in collection.items[1].sentences] == ["20", "21"]
    assert collection.items[1].path == str(tmp_path / "val2017" / "b.jpg")


def test_two_coco_files_in_a_folder_complete_each_other(tmp_path: Path) -> None:
    data = coco()
    for name, kept in {"train": data["images"][:2], "val": data["images"][2:]}.items():
        ids = {image["id"] for image in kept}
        annotations = [a for a in data["annotations"] if a["image_id"] in ids]
        write_json(tmp_path / "annotations" / f"captions_{name}2017.json", {"images": kept, "annotations": annotations})
    write_pictures(tmp_path / "train2017", ["a.jpg", "b.jpg"])
    write_pictures(tmp_path / "val2017", ["c.jpg"])
    collection = read_collection(tmp_path)
    assert collection.splits == {"train": 2, "val": 1}
    assert collection.items[2].path == str(tmp_path / "val2017" / "c.jpg")


def test_a_folder_of_captions_files_for_pictures_elsewhere(tmp_path: Path) -> None:
    write_json(tmp_path / "k" / "dataset.json", karpathy())
    collection = read_collection(write_pictures(tmp_path / "p"), captions=tmp_path / "k")
    assert {item.id: texts(item) for item in collection.items} == CAPTIONS
    with pytest.raises(DiptychError, match="p: no captions file in it"):
        read_collection(tmp_path / "p", captions=tmp_path / "p")


def broken_coco(change: str) -> dict[str, object]:
    data = coco()
    if change == "stranger":
        data["annotations"][2]["image_id"] = 99
    elif change == "twice":
        data["annotations"][2]["id"] = data["annotations"][0]["id"]
    elif change == "empty":
        data["annotations"][3]["caption"] = " \n"
    elif change == "nameless":
        del data["images"][1]["file_name"]
    return data


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("stranger", "PATH: annotations[2].image_id: no picture has the id '99'"),
        ("twice", "PATH: annotations[2].id: the caption id '10' is there twice: first at annotations[0]"),
        ("empty", "PATH: annotations[3].caption: the caption is empty"),
        ("nameless", "PATH: images[1].file_name: expected a file name, got None"),
    ],
)
def test_bad_coco(tmp_path: Path, change: str, sentence: str) -> None:
    says(write_json(tmp_path / "captions.json", broken_coco(change)), sentence)


@pytest.mark.parametrize(
    ("index", "changes", "sentence"),
    [
        (1, {"filename": None}, "PATH: images[1].filename: expected a file name, got None"),
        (1, {"split": 3}, "PATH: images[1].split: expected train, restval, val or test, got 3"),
        (1, {"sentences": []}, "PATH: images[1]: the picture 'b' has no captions"),
        (1, {"sentences": [{"raw": " "}]}, "PATH: images[1].sentences[0].raw: the caption is empty"),
        (1, {"sentences": [{"raw": 5}]}, "PATH: images[1].sentences[0].raw: expected a caption, got 5"),
        (1, {"sentences": "one"}, "PATH: images[1].sentences: expected a list, got 'one'"),
        (
            1,
            {"filename": "a.jpg"},
            "PATH: images[1]: the id 'a' is in two splits: 'val' here, 'train' at PATH: images[0]",
        ),
        (
            1,
            {"filename": "a.jpg", "split": "train"},
            "PATH: images[1]: the id 'a' is there twice: first at PATH: images[0]",
        ),
    ],
)
def test_bad_karpathy(tmp_path: Path, index: int, changes: dict[str, object], sentence: str) -> None:
    data = karpathy()
    data["images"][index].update(changes)
    says(write_json(tmp_path / "dataset.json", data), sentence)


def test_broken_json_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "dataset.json"
    path.write_text('{"images": [\n  {"filename": "a.jpg",}\n]}')
    with pytest.raises(DiptychError, match=r"dataset\.json: line 2, column \d+: not valid JSON"):
        read_collection(path)


def test_json_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"vocab\.json: expected Karpathy's JSON .* COCO's"):
        read_collection(write_json(tmp_path / "vocab.json", {"word2idx": {}}))


def table(kind: str) -> str:
    rows = [(f"{name}.jpg", text) for name, several in CAPTIONS.items() for text in several]
    if kind == "csv":
        return "image,caption\n" + "".join(f'{name},"{text}"\n' for name, text in rows)
    if kind == "bare.csv":
        return "".join(f"{name},{text}\r\n" for name, text in rows)
    if kind == "tsv":
        return "file_name\ttext\n" + "".join(f"{name}\t{text}\n" for name, text in rows)
    if kind == "token":
        return "".join(f"{name}#{i % 2}\t{text}\n" for i, (name, text) in enumerate(rows))
    if kind == "pipe.csv":
        return "image_name| comment_number| comment\n" + "".join(
            f"{n}| {i % 2}| {t}\n" for i, (n, t) in enumerate(rows)
        )
    if kind == "jsonl":
        return "".join(json.dumps({"image": n, "caption": t}) + "\n" for n, t in rows)
    if kind == "lists.jsonl":
        return "".join(json.dumps({"file_name": f"{n}.jpg", "captions": t}) + "\n" for n, t in CAPTIONS.items())
    if kind == "list.json":
        return json.dumps([{"image": f"{n}.jpg", "caption": t} for n, t in CAPTIONS.items()])
    return json.dumps({f"{n}.jpg": t for n, t in CAPTIONS.items()})


KINDS = ["csv", "bare.csv", "tsv", "token", "pipe.csv", "jsonl", "lists.jsonl", "list.json", "map.json"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("whole_folder", [True, False])
def test_tables(tmp_path: Path, kind: str, whole_folder: bool) -> None:
    write_pictures(tmp_path)
    path = tmp_path / f"captions.{kind}"
    path.write_text(table(kind))
    collection = read_collection(tmp_path if whole_folder else path)
    assert {item.id: texts(item) for item in collection.items} == CAPTIONS
    assert [s.id for s in collection.items[0].sentences] == ["a.jpg#0", "a.jpg#1"]
    assert all(item.open is not None and item.open().mode == "RGB" for item in collection.items)


def test_a_table_with_splits(tmp_path: Path) -> None:
    path = tmp_path / "captions.csv"
    path.write_text('image,split,caption\na.jpg,train,"one, two"\nb.jpg,validation,three\nc.jpg,test,four\n')
    collection = read_collection(path)
    assert collection.splits == {"train": 1, "val": 1, "test": 1}
    assert texts(collection.items[0]) == ["one, two"]


def test_a_caption_with_odd_separators_stays_one_line(tmp_path: Path) -> None:
    path = tmp_path / "c.tsv"
    path.write_text('a.jpg\ta "quoted\u2028thing\x85here\n')
    assert texts(read_collection(path).items[0]) == ['a "quoted thing here']


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "c.csv",
            "image,caption\na.jpg,one\nb.jpg,two, three\n",
            "PATH: line 3: expected 2 fields, got 3; a comma inside a caption needs quotes around it",
        ),
        ("c.tsv", "a.jpg\tone\nb.jpg\n", "PATH: line 2: expected 2 fields, got 1"),
        ("c.csv", "image,caption\na.jpg,one\n,two\n", "PATH: line 3: the picture's name is empty"),
        ("c.csv", "image,caption\na.jpg,one\nb.jpg,\n", "PATH: line 3: the caption is empty"),
        (
            "c.csv",
            "image,split,caption\na.jpg,train,one\na.jpg,test,two\n",
            "PATH: line 3: the id 'a.jpg' is in two splits: 'test' here, 'train' at PATH: line 2",
        ),
        (
            "c.jsonl",
            '{"image": "a.jpg", "caption": "one"}\n{"image": \n',
            "PATH: line 2, column 11: not valid JSON: Expecting value",
        ),
        (
            "c.jsonl",
            '{"image": "a.jpg", "caption": "one"}\n{"image": "b.jpg"}\n',
            "PATH: line 2: expected an object with 'image' and 'caption' or 'captions'",
        ),
        (
            "c.jsonl",
            '{"image": "a.jpg", "caption": "one"}\n{"image": "b.jpg", "captions": []}\n',
            "PATH: line 2: the picture 'b' has no captions",
        ),
    ],
)
def test_bad_tables(tmp_path: Path, name: str, content: str, sentence: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    says(path, sentence)
    assert [i.id for i in read_collection(path, skip_bad=True).items] == ["a"]


def test_a_table_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("some words\nmore\n")
    with pytest.raises(DiptychError, match=r"notes\.csv: line 1: expected a header with 'image' and 'caption'"):
        read_collection(path)


def test_same_name_texts(tmp_path: Path) -> None:
    write_pictures(tmp_path, ["train/a.jpg", "train/b.jpg", "test/c.png"])
    for name, several in CAPTIONS.items():
        (tmp_path / ("test" if name == "c" else "train") / f"{name}.txt").write_text("\n".join(several) + "\n")
    collection = read_collection(tmp_path)
    assert {item.id: texts(item) for item in collection.items} == CAPTIONS
    assert collection.splits == {"train": 2, "test": 1}


def test_a_picture_without_its_text(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt").write_text("\n")
    says(tmp_path, f"{tmp_path / 'b.txt'}: line 1: the caption is empty")
    problems = [str(p) for p in read_collection(tmp_path, skip_bad=True).problems]
    assert f"{tmp_path / 'c.txt'}: no such file; expected the captions of c.jpg" in problems


def test_pictures_alone(tmp_path: Path) -> None:
    write_pictures(tmp_path, ["b/x.jpg", "a/x.jpg", "y.webp", ".hidden.jpg"])
    (tmp_path / "README.txt").write_text("About these pictures, in short.")
    collection = read_collection(tmp_path)
    assert [i.id for i in collection.items] == ["a/x.jpg", "b/x.jpg", "y.webp"]
    assert all(not item.sentences for item in collection.items)


def test_a_picture_that_the_captions_file_does_not_know(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    picture().save(tmp_path / "d.jpg")
    (tmp_path / "captions.csv").write_text(table("csv"))
    says(tmp_path, f"PATH: the picture {tmp_path / 'd.jpg'} has no captions in captions.csv")
    assert len(read_collection(tmp_path, skip_bad=True)) == 3


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match="nothing that can be read in it; expected pictures"):
        read_collection(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"gone\.json: no such file or folder"):
        read_collection(tmp_path / "gone.json")


def test_two_captions_files_that_disagree(tmp_path: Path) -> None:
    first = write_json(tmp_path / "a.json", karpathy())
    second = write_json(tmp_path / "b.json", karpathy({**CAPTIONS, "b": ["Two dogs run.", "Three dogs."]}))
    wrong = (
        f"picture 'b': {first} and {second} disagree on its captions: "
        f"'Dogs on a field.' is only in {first} and 'Three dogs.' is only in {second}"
    )
    says(tmp_path, wrong)
    assert [i.id for i in read_collection(tmp_path, skip_bad=True).items] == ["a", "c"]
    says(first, wrong, captions=second)


def test_two_captions_files_that_say_the_same_in_other_words(tmp_path: Path) -> None:
    first = write_json(tmp_path / "a.json", karpathy({n: [t.lower() for t in ts] for n, ts in CAPTIONS.items()}))
    second = write_json(tmp_path / "b.json", karpathy({n: list(reversed(ts)) for n, ts in CAPTIONS.items()}))
    assert len(read_collection(tmp_path)) == 3
    assert texts(read_collection(first, captions=second).items[0]) == list(reversed(CAPTIONS["a"]))


def test_two_captions_files_with_other_splits(tmp_path: Path) -> None:
    first = write_json(tmp_path / "a.json", karpathy())
    second = write_json(tmp_path / "b.json", karpathy(splits={"a": "test", "b": "val", "c": "test"}))
    says(tmp_path, f"picture 'a': the picture is in two splits: 'train' in {first}, 'test' in {second}")


def test_a_second_captions_file_that_lacks_a_picture(tmp_path: Path) -> None:
    first = write_json(tmp_path / "a.json", karpathy())
    second = write_json(tmp_path / "b.json", karpathy({"a": CAPTIONS["a"], "b": CAPTIONS["b"]}))
    says(first, f"{second}: no captions for the picture 'c' (c.jpg) of PATH", captions=second)


def test_an_unknown_split_lists_those_there(tmp_path: Path) -> None:
    path = write_json(tmp_path / "dataset.json", karpathy())
    with pytest.raises(DiptychError, match=r"no split 'dve'; there is train \(1\), val \(1\), test \(1\)"):
        read_collection(path, split="dve")
    assert [i.id for i in read_collection(path, split="dev").items] == ["b"]


def test_the_validation_split_can_be_cut(tmp_path: Path) -> None:
    path = write_json(tmp_path / "d.json", karpathy(splits={"a": "val", "b": "val", "c": "test"}))
    assert read_collection(path, dev_limit=1).splits == {"val": 1, "test": 1}


def test_nothing_left(tmp_path: Path) -> None:
    data = karpathy()
    for image in data["images"]:
        image["sentences"] = []
    path = write_json(tmp_path / "d.json", data)
    with pytest.raises(DiptychError, match=r"no picture is left; the first problem is .*images\[0\]: the picture 'a'"):
        read_collection(path, skip_bad=True)


def test_tables_of_something_else_are_left_alone(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    (tmp_path / "captions.csv").write_text(table("csv"))
    (tmp_path / "prices.csv").write_text("thing,price\nboat,3\n")
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n')
    write_json(tmp_path / "settings.json", {"size": 3})
    assert len(read_collection(tmp_path)) == 3


@pytest.mark.parametrize("name", ["", "captions.json"])
def test_drawn_scenes_are_read_back(tmp_path: Path, name: str) -> None:
    write_scenes(tmp_path / "scenes", 10, picture_size=32)
    collection = read_collection(tmp_path / "scenes" / name, deep=True)
    assert collection.splits == {"train": 8, "val": 1, "test": 1}
    assert all(len(item.sentences) == 5 for item in collection.items)
