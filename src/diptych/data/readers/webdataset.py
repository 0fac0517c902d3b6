"""webdataset tars: KEY.jpg with KEY.txt or KEY.json, indexed once for random access, or streamed from end to end."""

import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, Open, Sentence
from diptych.data.pictures import PictureBytes, PicturePart, is_picture
from diptych.data.readers import fields
from diptych.data.readers.faults import Faults, Gathering, caption
from diptych.data.readers.picture_names import folder_split, split_in, split_name

SUFFIXES = (".tar", ".tar.gz", ".tgz")
_TEXTS = (".txt", ".json", ".caption")


@dataclass
class Sample:
    """The members of a tar that share a key."""

    tar: Path
    key: str
    picture: str = ""
    open: Open | None = None
    captions: list[Sentence] = field(default_factory=list)
    split: str | None = None
    broken: bool = False


def find_tars(path: Path) -> list[Path]:
    """The tar itself, or the tars of a folder and of those right inside it."""
    if path.is_file():
        return [path]
    return sorted(p for pattern in ("*", "*/*") for p in path.glob(pattern) if p.name.endswith(SUFFIXES))


def read_webdataset(tars: Sequence[Path], name: str, faults: Faults, captioned: bool | None = None) -> Collection:
    """The samples of tars, pictures read straight from their place in the tar when they are opened.

    captioned: whether every picture needs captions; by default, as soon as one has some
    """
    samples = []
    for tar in tars:
        with faults.guard(tar):
            samples += list(_index(tar, faults))
    if captioned is None:
        captioned = any(sample.captions for sample in samples)
    return Collection(name, list(_gather(samples, faults, captioned)), format="webdataset")


def stream_webdataset(tars: Sequence[Path], faults: Faults | None = None) -> Iterator[Item]:
    """The samples of tars one after the other, each read once from front to back; compressed tars too.

    faults: takes the problems, and may go on without the bad samples; by default the first is an error
    """
    faults = faults or Faults()
    for tar in tars:
        with faults.guard(tar):
            gathering = Gathering(faults, captioned=False)
            for sample in _samples(tar, faults, streamed=True):
                item = _item(sample, faults)
                if item is not None and gathering.add(item, f"{tar}: {sample.key}"):
                    yield gathering.items.pop()


def _gather(samples: Sequence[Sample], faults: Faults, captioned: bool) -> Iterator[Item]:
    gathering = Gathering(faults, captioned)
    for sample in samples:
        item = _item(sample, faults)
        if item is not None:
            gathering.add(item, f"{sample.tar}: {sample.key}")
    yield from gathering.items


def _item(sample: Sample, faults: Faults) -> Item | None:
    where = f"{sample.tar}: {sample.key}"
    if sample.broken:
        return None
    if sample.open is None:
        faults.tell(where, "no picture with this key; expected KEY.jpg or its like")
        return None
    split = split_name(sample.split) if sample.split else split_in(sample.tar.name)
    if split == "all":
        split = folder_split(sample.tar.parent.name)
    metadata = {"filename": sample.picture}
    if split == "restval":
        split, metadata = "train", {**metadata, "source_split": "restval"}
    path = f"{sample.tar}: {sample.picture}"
    return Item(sample.key, tuple(sample.captions), split, sample.open, path, metadata=metadata)


def _index(tar: Path, faults: Faults) -> Iterator[Sample]:
    if not tar.name.endswith(".tar"):
        raise DiptychError("a compressed tar cannot be read at random; unpack it to .tar, or stream it", where=tar)
    yield from _samples(tar, faults, streamed=False)


def _samples(tar: Path, faults: Faults, streamed: bool) -> Iterator[Sample]:
    """Members with one key, which stand next to each other."""
    sample: Sample | None = None
    texts: dict[str, tuple[str, bytes]] = {}
    for member, data, offset, size in _members(tar, streamed):
        folder, slash, base = member.rpartition("/")
        stem, _, suffix = base.partition(".")
        key, suffix = folder + slash + stem, suffix.lower()
        if sample is None or sample.key != key:
            if sample is not None:
                yield _finish(sample, texts, faults)
            sample, texts = Sample(tar, key), {}
        if is_picture(base) and "." not in suffix:
            sample.picture = member
            if data is None:
                sample.open = PicturePart(tar, member, offset, size)
            else:
                sample.open = PictureBytes(data, f"{tar}: {member}")
        elif f".{suffix}" in _TEXTS and data is not None:
            texts[suffix] = (member, data)
    if sample is None:
        raise DiptychError("the tar is empty", where=tar)
    yield _finish(sample, texts, faults)


def _members(tar: Path, streamed: bool) -> Iterator[tuple[str, bytes | None, int, int]]:
    """Name, content (of pictures only when streamed), offset and size of every file in a tar."""
    try:
        with tarfile.open(tar, "r|*" if streamed else "r:") as archive, tar.open("rb") as raw:
            end = tar.stat().st_size
            while (info := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # else tarfile keeps every header
                if not info.isfile() or info.name.rpartition("/")[2].startswith("."):
                    continue
                if streamed:
                    content = archive.extractfile(info)
                    yield info.name, content.read() if content else b"", 0, info.size
                    continue
                if info.offset_data + info.size > end:
                    raise DiptychError(f"{info.name}: the tar is truncated in the middle of this file", where=tar)
                data = None
                if info.name.lower().endswith(_TEXTS):
                    raw.seek(info.offset_data)
                    data = raw.read(info.size)
                yield info.name, data, info.offset_data, info.size
    except (tarfile.TarError, EOFError) as error:
        raise DiptychError(f"not a whole tar: {error}", where=tar) from None
    except OSError as error:
        raise DiptychError(f"cannot be read: {error.strerror or error}", where=tar) from None


def _finish(sample: Sample, texts: dict[str, tuple[str, bytes]], faults: Faults) -> Sample:
    """Read the sample's captions; where it has both a .txt and a .json, they must say the same."""
    plain: list[str] = []
    for suffix in ("txt", "caption"):
        if suffix in texts:
            member, data = texts[suffix]
            plain = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
            if not plain:
                faults.tell(f"{sample.tar}: {member}", "the caption is empty")
    listed = _from_json(sample, *texts["json"], faults) if "json" in texts else []
    member = texts["json"][0] if listed else next((texts[s][0] for s in ("txt", "caption") if s in texts), "")
    if plain and listed and " ".join(" ".join(plain).split()) != " ".join(" ".join(map(str, listed)).split()):
        faults.tell(
            f"{sample.tar}: {sample.key}",
            f"two captions files disagree: {plain[0].strip()!r} in .txt, {listed[0]!r} in .json",
        )
        sample.broken = True
    for text in listed or plain:
        kept = caption(text, f"{sample.key}#{len(sample.captions)}", f"{sample.tar}: {member}", faults)
        if kept is not None:
            sample.captions.append(kept)
    return sample


def _from_json(sample: Sample, member: str, data: bytes, faults: Faults) -> list[object]:
    where = f"{sample.tar}: {member}"
    try:
        value = json.loads(data)
    except json.JSONDecodeError as error:
        faults.tell(f"{where}: line {error.lineno}, column {error.colno}", f"not valid JSON: {error.msg}")
        sample.broken = True
        return []
    except UnicodeDecodeError as error:
        faults.tell(where, f"not valid UTF-8: {error.reason} at byte {error.start}")
        sample.broken = True
        return []
    if not isinstance(value, dict):
        faults.tell(where, f"expected an object with 'captions' or 'caption', got {type(value).__name__}")
        sample.broken = True
        return []
    chosen = fields.pick(value, fields.SPLITS)
    if chosen is not None and isinstance(value[chosen], str):
        sample.split = value[chosen]
    key = fields.pick(value, fields.CAPTIONS)
    if key is None or value[key] is None:
        return []
    texts = value[key] if isinstance(value[key], list) else [value[key]]
    return [fields.text_of(text) for text in texts]
