"""A folder of pictures: captions in a table or JSON beside them, in a .txt of the same name, or none."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, Sentence, open_path
from diptych.data.pictures import is_picture
from diptych.data.readers.captions import captions_in, read_several
from diptych.data.readers.combine import with_captions
from diptych.data.readers.faults import Faults, Gathering, caption
from diptych.data.readers.picture_names import folder_split, stem
from diptych.data.readers.precomp import read_lines

_CAPTION_FOLDERS = ("annotations", "captions")


def picture_files(folder: Path) -> list[str]:
    """The pictures of a folder and of those inside it, as sorted relative paths with `/`; hidden ones left out."""
    return sorted(_walk(folder, ""))


def _walk(folder: Path, prefix: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")
            elif is_picture(entry.name):
                yield prefix + entry.name


def read_pictures(folder: Path, names: list[str], faults: Faults) -> Collection:
    """Pictures alone; a folder called train, val or test is a split."""
    bases = [stem(name) for name in names]
    short = len(set(bases)) == len(bases)
    gathering = Gathering(faults, captioned=False)
    for name, base in zip(names, bases, strict=True):
        path = folder / name
        split = folder_split(name.rpartition("/")[0])
        item = Item(base if short else name, (), split, open_path(path), str(path), metadata={"filename": name})
        gathering.add(item, str(path))
    return Collection(folder.name, gathering.items, format="folder of pictures")


def read_folder(folder: Path, faults: Faults, captioned: bool = True) -> Collection:
    """The pictures of a folder with the captions that are beside them.

    captioned: whether to look for captions at all
    """
    names = picture_files(folder)
    files = captions_in(folder, names, faults) if captioned else []
    if not names:
        if not files:
            raise DiptychError(
                "nothing that can be read in it; expected pictures, tars, features or a captions file", where=folder
            )
        return replace(read_several(files, faults), name=folder.name)
    pictures = read_pictures(folder, names, faults)
    if files:
        places = " and ".join(path.name for path, _ in files)
        whole = with_captions(read_several(files, faults), places, pictures, str(folder), faults, every=True)
        return replace(whole, name=folder.name)
    return _with_texts(folder, pictures, faults) if captioned else pictures


def _with_texts(folder: Path, pictures: Collection, faults: Faults) -> Collection:
    """Captions from a .txt with the picture's name, one a line; pictures without any are one's own where none has."""
    texts = [(folder / item.metadata["filename"]).with_suffix(".txt") for item in pictures.items]
    if not any(text.exists() for text in texts):
        return pictures
    gathering = Gathering(faults)
    for item, text in zip(pictures.items, texts, strict=True):
        if not text.exists():
            faults.tell(str(text), f"no such file; expected the captions of {item.metadata['filename']}")
            continue
        with faults.guard(text):
            gathering.add(replace(item, sentences=_sentences(text, item.id, faults)), str(text))
    return replace(pictures, items=gathering.items, format="folder of pictures with .txt captions")


def _sentences(path: Path, id: str, faults: Faults) -> tuple[Sentence, ...]:
    sentences: list[Sentence] = []
    for number, line in enumerate(read_lines(path), 1):
        kept = caption(line, f"{id}#{len(sentences)}", f"{path}: line {number}", faults)
        if kept is not None:
            sentences.append(kept)
    return tuple(sentences)


def near(captions: Collection, path: Path, faults: Faults) -> Collection:
    """The items of a captions file with the pictures that lie around it; without any, the items as they are.

    As soon as one picture is found at its place under a folder nearby, all are expected there.
    """
    homes = [path.parent]
    if path.parent.name.lower() in _CAPTION_FOLDERS:
        homes.append(path.parent.parent)
    roots = [root for home in homes for root in (home, home / "images")]
    roots += [root / sub for root in roots for sub in _folders(root) if folder_split(sub) != "all"]
    listed: dict[Path, frozenset[str]] = {}
    some = captions.items[:: max(1, len(captions.items) // 200)]
    root = next((r for r in roots for item in some if _at(r, item, listed) is not None), None)
    if root is None:
        return captions
    items = []
    for item in captions.items:
        place = _at(root, item, listed)
        if place is None:
            name = item.metadata.get("filename", item.id)
            faults.tell(str(root / name), f"no such picture; expected by {path.name} for the id {item.id!r}")
        else:
            items.append(replace(item, open=open_path(place), path=str(place)))
    return replace(captions, items=items)


def _folders(root: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    except OSError:
        return []


def _at(root: Path, item: Item, listed: dict[Path, frozenset[str]]) -> Path | None:
    """The item's picture under a root, with or without the folders in its name; each folder is listed once."""
    name = item.metadata.get("filename", item.id)
    for path in dict.fromkeys((root / name, root / Path(name).name)):
        if path.parent not in listed:
            listed[path.parent] = frozenset(os.listdir(path.parent) if path.parent.is_dir() else [])
        if path.name in listed[path.parent] and is_picture(path.name):
            return path
    return None
