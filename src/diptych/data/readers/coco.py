"""COCO's captions JSON: {"images": [{"id", "file_name"}], "annotations": [{"id", "image_id", "caption"}]}."""

from pathlib import Path
from typing import Any

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, Sentence
from diptych.data.readers.faults import Faults, Gathering, caption
from diptych.data.readers.picture_names import split_in


def is_coco(data: Any) -> bool:
    """Whether parsed JSON has the outline of COCO's."""
    return isinstance(data, dict) and "images" in data and "annotations" in data


def read_coco(path: Path, data: dict[str, Any], faults: Faults) -> Collection:
    """The pictures and captions of COCO's JSON; the split is what the file name says (`captions_val2014.json`)."""
    for key in ("images", "annotations"):
        if not isinstance(data[key], list):
            raise DiptychError(f"{key}: expected a list, got {type(data[key]).__name__}", where=path)
    if not data["images"]:
        raise DiptychError("images: the list is empty", where=path)
    known = {str(image["id"]) for image in data["images"] if isinstance(image, dict) and "id" in image}
    captions: dict[str, list[Sentence]] = {}
    taken: dict[str, int] = {}
    for i, annotation in enumerate(data["annotations"]):
        where = f"{path}: annotations[{i}]"
        if not isinstance(annotation, dict) or "image_id" not in annotation:
            faults.tell(where, "expected an object with 'image_id' and 'caption'")
            continue
        owner = str(annotation["image_id"])
        if owner not in known:
            faults.tell(f"{where}.image_id", f"no picture has the id {owner!r}")
            continue
        number = len(captions.get(owner, []))
        id = str(annotation["id"]) if annotation.get("id") is not None else f"{owner}#{number}"
        if id in taken:
            faults.tell(f"{where}.id", f"the caption id {id!r} is there twice: first at annotations[{taken[id]}]")
            continue
        taken[id] = i
        kept = caption(annotation.get("caption"), id, f"{where}.caption", faults)
        if kept is not None:
            captions.setdefault(owner, []).append(kept)
    gathering = Gathering(faults)
    split = split_in(path.name)
    for i, image in enumerate(data["images"]):
        where = f"{path}: images[{i}]"
        if not isinstance(image, dict) or image.get("id") is None:
            faults.tell(f"{where}.id", "missing; expected the picture's number")
            continue
        filename = image.get("file_name")
        if not isinstance(filename, str) or not filename:
            faults.tell(f"{where}.file_name", f"expected a file name, got {filename!r}")
            continue
        id = str(image["id"])
        metadata = {"filename": filename, "cocoid": id}
        gathering.add(Item(id, tuple(captions.get(id, ())), split, metadata=metadata), where)
    return Collection(path.stem, gathering.items, format="COCO captions JSON")
