"""Karpathy's JSON: {"dataset", "images": [{"filename", "filepath"?, "split", "sentences": [{"raw", "sentid"}]}]}."""

from pathlib import Path
from typing import Any

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, Sentence
from diptych.data.readers.faults import Faults, Gathering, caption
from diptych.data.readers.picture_names import split_name, stem


def is_karpathy(data: Any) -> bool:
    """Whether parsed JSON has the outline of Karpathy's."""
    return isinstance(data, dict) and isinstance(data.get("images"), list) and "annotations" not in data


def read_karpathy(path: Path, data: dict[str, Any], faults: Faults) -> Collection:
    """The pictures and sentences of Karpathy's JSON; `restval` joins `train`, and is remembered as `source_split`.

    A picture's id is its `cocoid`, or its file name without the suffix.
    """
    images = data["images"]
    if not images:
        raise DiptychError("images: the list is empty", where=path)
    stems = [stem(_name(image)) for image in images]
    short = len(set(stems)) == len({_name(image) for image in images})
    gathering = Gathering(faults)
    for i, image in enumerate(images):
        item = _item(f"{path}: images[{i}]", image, short, faults)
        if item is not None:
            gathering.add(item, f"{path}: images[{i}]")
    name = data.get("dataset")
    return Collection(name if isinstance(name, str) and name else path.stem, gathering.items, format="Karpathy JSON")


def _name(image: Any) -> str:
    name = image.get("filename") if isinstance(image, dict) else None
    return name if isinstance(name, str) else ""


def _item(where: str, image: Any, short: bool, faults: Faults) -> Item | None:
    if not isinstance(image, dict):
        faults.tell(where, f"expected an object, got {image!r}")
        return None
    filename = _name(image)
    if not filename:
        faults.tell(f"{where}.filename", f"expected a file name, got {image.get('filename')!r}")
        return None
    split = image.get("split")
    if not isinstance(split, str) or not split:
        faults.tell(f"{where}.split", f"expected train, restval, val or test, got {split!r}")
        return None
    raw = image.get("sentences")
    if not isinstance(raw, list):
        faults.tell(f"{where}.sentences", f"expected a list, got {raw!r}")
        return None
    folder = image.get("filepath")
    metadata = {"filename": f"{folder}/{filename}" if isinstance(folder, str) and folder else filename}
    for key in ("imgid", "cocoid"):
        if image.get(key) is not None:
            metadata[key] = str(image[key])
    source = split_name(split)
    if source == "restval":
        metadata["source_split"] = "restval"
        source = "train"
    id = metadata.get("cocoid") or (stem(filename) if short else metadata["filename"])
    return Item(id, _sentences(where, raw, id, faults), source, metadata=metadata)


def _sentences(where: str, raw: list[Any], id: str, faults: Faults) -> tuple[Sentence, ...]:
    sentences = []
    for j, sentence in enumerate(raw):
        if not isinstance(sentence, dict):
            faults.tell(f"{where}.sentences[{j}]", f"expected an object, got {sentence!r}")
            continue
        text = sentence.get("raw")
        if text is None and isinstance(sentence.get("tokens"), list):
            text = " ".join(map(str, sentence["tokens"]))
        number = sentence.get("sentid")
        kept = caption(text, f"{id}#{j}" if number is None else str(number), f"{where}.sentences[{j}].raw", faults)
        if kept is not None:
            sentences.append(kept)
    return tuple(sentences)
