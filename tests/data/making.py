"""Tiny data in every format."""

import base64
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from diptych.data.collection import Regions
from diptych.data.feature_file import FeatureSource
from diptych.data.feature_writer import FeatureWriter

CAPTIONS = {
    "a": ["A red boat.", "A boat on the sea."],
    "b": ["Two dogs run.", "Dogs on a field."],
    "c": ["A cat sleeps.", "A grey cat."],
}
SPLITS = {"a": "train", "b": "val", "c": "test"}


def picture(seed: int = 0, size: tuple[int, int] = (12, 8)) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(values)


def picture_bytes(seed: int = 0, size: tuple[int, int] = (12, 8)) -> bytes:
    out = io.BytesIO()
    picture(seed, size).save(out, "JPEG")
    return out.getvalue()


def write_pictures(folder: Path, names: Sequence[str] = ("a.jpg", "b.jpg", "c.jpg")) -> Path:
    for i, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(i).save(path)
    return folder


def karpathy(captions: Mapping[str, Sequence[str]] = CAPTIONS, splits: Mapping[str, str] = SPLITS) -> dict[str, Any]:
    images, number = [], 100
    for i, (name, texts) in enumerate(captions.items()):
        sentences = []
        for text in texts:
            sentences.append({"raw": text, "sentid": number, "imgid": i})
            number += 1
        images.append({"filename": f"{name}.jpg", "imgid": i, "split": splits[name], "sentences": sentences})
    return {"dataset": "tiny", "images": images}


def coco(captions: Mapping[str, Sequence[str]] = CAPTIONS) -> dict[str, Any]:
    images = [{"id": i + 1, "file_name": f"{name}.jpg"} for i, name in enumerate(captions)]
    annotations = [
        {"id": 10 * (i + 1) + j, "image_id": i + 1, "caption": text}
        for i, texts in enumerate(captions.values())
        for j, text in enumerate(texts)
    ]
    return {"images": images, "annotations": annotations}


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def features(count: int = 3, regions: int = 4, dim: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, regions, dim)).astype(np.float32)


def boxes(count: int = 3, regions: int = 4, seed: int = 1) -> np.ndarray:
    corner = np.random.default_rng(seed).uniform(0, 5, (count, regions, 4)).astype(np.float32)
    corner[..., 2:] += corner[..., :2]
    return corner


def write_precomp(
    folder: Path,
    counts: Mapping[str, int],
    repeated: Sequence[str] = ("dev", "test", "testall"),
    each: int = 5,
    ids: bool = True,
) -> Path:
    """A precomp folder; picture i of a split has features that are its number in the whole, plus noise."""
    folder.mkdir(parents=True, exist_ok=True)
    start = 0
    for split, count in counts.items():
        array = features(count, seed=len(split)) + np.arange(start, start + count, dtype=np.float32)[:, None, None]
        np.save(folder / f"{split}_ims.npy", array.repeat(each, 0) if split in repeated else array)
        lines = [f"{split} picture {i} caption {j}" for i in range(count) for j in range(each)]
        (folder / f"{split}_caps.txt").write_text("\n".join(lines) + "\n")
        if ids:
            (folder / f"{split}_ids.txt").write_text("".join(f"{1000 + start + i}\n" for i in range(count)))
        start += count
    return folder


def tsv_line(id: str, vectors: np.ndarray, box: np.ndarray, size: tuple[int, int] = (640, 480)) -> str:
    encoded = [base64.b64encode(np.ascontiguousarray(a, dtype="<f4").tobytes()).decode() for a in (box, vectors)]
    return "\t".join([id, str(size[0]), str(size[1]), str(len(vectors)), *encoded]) + "\n"


def write_tsv(path: Path, ids: Sequence[str] = ("a", "b", "c")) -> Path:
    values, corners = features(len(ids)), boxes(len(ids))
    path.write_text("".join(tsv_line(id, v, b) for id, v, b in zip(ids, values, corners, strict=True)))
    return path


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def sample(key: str, captions: Sequence[str], seed: int = 0) -> dict[str, bytes]:
    return {f"{key}.jpg": picture_bytes(seed), f"{key}.json": json.dumps({"captions": list(captions)}).encode()}


def texts(item: Any) -> list[str]:
    return [sentence.text for sentence in item.sentences]


def write_feature_file(path: Path, ids: Sequence[str]) -> Path:
    writer = FeatureWriter(path, FeatureSource("some-backbone", 224, 6, "single", grid=(2, 2)))
    for id, vectors in zip(ids, features(len(ids)), strict=True):
        writer.add(id, Regions(vectors, None, (640, 480)))
    writer.finish()
    return path
