"""Hugging Face datasets: a folder written by `save_to_disk`, or a name on the hub; an image column and captions."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, Sentence
from diptych.data.pictures import PictureBytes, PictureFile, to_rgb
from diptych.data.readers import fields
from diptych.data.readers.faults import Faults, Gathering, caption
from diptych.data.readers.picture_names import split_name, stem

_IDS = ("cocoid", "image_id", "img_id", "imgid", "id", "key", "filename", "file_name")
_FILES = ("filename", "file_name", "image_path", "filepath")
_SENTENCE_IDS = ("sentids", "sentid", "caption_ids", "caption_id")


def is_huggingface(folder: Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    return (folder / "dataset_dict.json").exists() or (
        (folder / "state.json").exists() and (folder / "dataset_info.json").exists()
    )


@dataclass(frozen=True)
class PictureCell:
    """Decodes a picture of a Hugging Face dataset when called."""

    table: Any
    column: str
    row: int
    where: str

    def __call__(self) -> Image.Image:
        """The picture as upright RGB."""
        cell = self.table[self.row][self.column]
        if isinstance(cell, Image.Image):
            return to_rgb(cell)
        if isinstance(cell, dict) and cell.get("bytes") is not None:
            return PictureBytes(cell["bytes"], self.where)()
        name = cell.get("path") if isinstance(cell, dict) else cell
        if isinstance(name, str):
            return PictureFile(Path(name))()
        raise DiptychError(f"expected a picture, got {type(cell).__name__}", where=self.where)


def read_huggingface(source: str, faults: Faults) -> Collection:
    """The pictures and captions of a dataset; rows with one id are joined, as where each row has one caption."""
    tables = _load(source)
    gathering = Gathering(faults, captioned=any(_caption_columns(table) for table in tables.values()))
    for name, table in tables.items():
        _read_table(f"{source}: {name}" if name else source, name, table, gathering)
    return Collection(Path(source).name, gathering.items, format="Hugging Face dataset")


def _load(source: str) -> dict[str, Any]:
    try:
        import datasets
    except ImportError:
        raise DiptychError("needs the package datasets: pip install 'diptych[hub]'", where=source) from None
    try:
        loaded = datasets.load_from_disk(source) if Path(source).exists() else datasets.load_dataset(source)
    except Exception as error:  # the hub, the network and arrow raise all kinds
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DiptychError(
            f"not a folder that can be read, nor a Hugging Face dataset: {reason}", where=source
        ) from error
    return dict(loaded) if isinstance(loaded, dict) else {"": loaded}


def _image_column(table: Any) -> str | None:
    import datasets

    typed = [name for name, kind in table.features.items() if isinstance(kind, datasets.Image)]
    return typed[0] if typed else fields.pick(table.column_names, ("image", "img", "picture", "jpg", "png"))


def _caption_columns(table: Any) -> list[str]:
    one = fields.pick(table.column_names, fields.CAPTIONS)
    if one is not None:
        return [one]
    starts = tuple(f"{name}_" for name in fields.CAPTIONS)
    return [c for c in table.column_names if c.lower().startswith(starts) and c.rpartition("_")[2].isdigit()]


def _read_table(where: str, name: str, table: Any, gathering: Gathering) -> None:
    import datasets

    faults, image, texts = gathering.faults, _image_column(table), _caption_columns(table)
    if image is None:
        raise DiptychError(f"columns {', '.join(table.column_names)}; expected one with pictures, 'image'", where=where)
    by_id, by_file = fields.pick(table.column_names, _IDS), fields.pick(table.column_names, _FILES)
    by_split = fields.pick(table.column_names, fields.SPLITS)
    numbers = fields.pick(table.column_names, _SENTENCE_IDS)
    encoded = table.cast_column(image, datasets.Image(decode=False)) if _is_image(table, image) else table
    wanted = list(dict.fromkeys([*texts, *(c for c in (by_id, by_file, by_split, numbers) if c)]))
    plain = table.select_columns(wanted) if wanted else ({} for _ in range(len(table)))
    missing = _missing(table, image)
    rows: dict[str, tuple[int, Item]] = {}
    for row, values in enumerate(plain):
        place = f"{where}: row {row}"
        if row in missing:
            faults.tell(f"{place}: {image}", "no picture in it")
            continue
        id = _id(values[by_id] if by_id else None, name, row)
        sentences = _sentences(place, values, texts, values[numbers] if numbers else None, id, faults)
        if id in rows:
            first, item = rows[id]
            rows[id] = (
                first,
                Item(
                    id, _joined(item.sentences, sentences, id), item.split, item.open, item.path, metadata=item.metadata
                ),
            )
            continue
        split = split_name(str(values[by_split]) if by_split and values[by_split] else name or "all")
        metadata = {"filename": str(values[by_file])} if by_file and values[by_file] else {}
        if by_id == "cocoid":
            metadata["cocoid"] = id
        if split == "restval":
            split, metadata = "train", {**metadata, "source_split": "restval"}
        rows[id] = (row, Item(id, sentences, split, PictureCell(encoded, image, row, place), place, metadata=metadata))
    for row, item in rows.values():
        gathering.add(item, f"{where}: row {row}")


def _is_image(table: Any, column: str) -> bool:
    import datasets

    return isinstance(table.features[column], datasets.Image)


def _missing(table: Any, column: str) -> set[int]:
    """The rows without a picture, found without decoding any."""
    nulls: set[int] = set()
    if not table.data.column(column).null_count:
        return nulls
    arrow = table.with_format("arrow")
    for start in range(0, len(table), 10_000):
        cells = arrow[start : start + 10_000].column(column)
        if cells.null_count:
            nulls.update(start + i for i, gone in enumerate(cells.is_null().to_pylist()) if gone)
    return nulls


def _id(value: object, name: str, row: int) -> str:
    if value is None or value == "":
        return f"{name}/{row}" if name else str(row)
    return stem(value) if isinstance(value, str) else str(value)


def _sentences(
    where: str, values: dict[str, Any], columns: Iterable[str], numbers: Any, id: str, faults: Faults
) -> tuple[Sentence, ...]:
    texts: list[tuple[str, object]] = []
    for column in columns:
        cell = values[column]
        texts += [(column, text) for text in (cell if isinstance(cell, list) else [cell])]
    ids = [str(n) for n in numbers] if isinstance(numbers, list) else [str(numbers)] if numbers is not None else []
    sentences = []
    for i, (column, text) in enumerate(texts):
        number = ids[i] if len(ids) == len(texts) else f"{id}#{i}"
        if isinstance(text, dict):
            number, text = str(text.get("sentid", number)), fields.text_of(text)
        kept = caption(text, number, f"{where}: {column}", faults)
        if kept is not None:
            sentences.append(kept)
    return tuple(sentences)


def _joined(before: tuple[Sentence, ...], more: tuple[Sentence, ...], id: str) -> tuple[Sentence, ...]:
    taken = {sentence.id for sentence in before}
    fresh = [Sentence(s.text, f"{id}#{len(before) + i}") if s.id in taken else s for i, s in enumerate(more)]
    return (*before, *fresh)
