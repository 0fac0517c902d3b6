"""Drawn scenes as files: pictures, captions as in Karpathy's JSON, truth and near misses as JSON lines."""

import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.common.files import write_json, write_text
from diptych.common.progress import track
from diptych.data.scenes.collection import split_names
from diptych.data.scenes.draw import PICTURE_SIZE, boxes, checked_size, draw
from diptych.data.scenes.generate import SENTENCES, captioned_scenes
from diptych.data.scenes.near_miss import near_miss_pair
from diptych.data.scenes.scene import Scene
from diptych.data.scenes.words import Caption

SETTINGS = ".scenes-settings.json"
NEAR_MISS = "near-miss"  # the split of near-miss pictures


def write_scenes(
    folder: Path,
    count: int,
    seed: int = 0,
    splits: Sequence[float] = (0.8, 0.1, 0.1),
    picture_size: int = PICTURE_SIZE,
    near_misses: int = 0,
) -> None:
    """Write scenes into a folder, as docs/scenes.md describes it.

    Every file is whole or not there, captions come last, and the same call repeats an interrupted one. A folder that
    was begun with other settings is refused, since its files would be mixed.
    """
    names = split_names(count, splits)
    checked_size(picture_size)
    if near_misses < 0:
        raise DiptychError(f"near misses: {near_misses} is not possible; expected 0 or more")
    settings = {"count": count, "seed": seed, "splits": list(splits), "picture_size": picture_size}
    _claim(folder, {**settings, "near_misses": near_misses})
    images = _write_captioned(folder, count, seed, names, picture_size)
    if near_misses:
        images += _write_near_misses(folder, near_misses, seed, picture_size, count)
    lines = ",\n".join(json.dumps(image) for image in images)
    write_text(folder / "captions.json", f'{{"dataset": "scenes", "images": [\n{lines}\n]}}\n')


def _write_captioned(
    folder: Path, count: int, seed: int, splits: Sequence[str], picture_size: int
) -> list[dict[str, Any]]:
    """Pictures and truth of the scenes; returns their entries for the captions file."""
    images, truth = [], []
    scenes = track(captioned_scenes(count, seed), "drawing", total=count, unit="scenes")
    for scene, split in zip(scenes, splits, strict=True):
        name = f"{scene.id}.png"
        _write_picture(folder / "pictures" / name, draw(scene.scene, picture_size))
        images.append(_karpathy(name, split, scene.captions, scene.index, scene.index * len(scene.captions)))
        truth.append(
            {
                "id": scene.id,
                "picture": f"pictures/{name}",
                "split": split,
                **describe_scene(scene.scene, picture_size),
                "sentences": [_caption(c) for c in scene.captions],
            }
        )
    _write_lines(folder / "truth" / "scenes.jsonl", truth)
    return images


def _write_near_misses(folder: Path, count: int, seed: int, picture_size: int, scenes: int) -> list[dict[str, Any]]:
    """Pictures and truth of the pairs; returns their entries: each picture with the one sentence that fits it."""
    images: list[dict[str, Any]] = []
    truth: list[dict[str, Any]] = []
    for index in track(range(count), "near misses", unit="pairs"):
        pair = near_miss_pair(seed, index)
        told: dict[str, Any] = {"attribute": pair.attribute}
        for key, letter, scene, caption in (
            ("right", "a", pair.scene, pair.sentence),
            ("other", "b", pair.other, pair.wrong),
        ):
            name = f"near-miss-{seed}-{index:06d}-{letter}.png"
            _write_picture(folder / "pictures" / name, draw(scene, picture_size))
            told[key] = {
                "id": name.removesuffix(".png"),
                "picture": f"pictures/{name}",
                **describe_scene(scene, picture_size),
                "sentence": _caption(caption),
            }
            number = len(images)
            images.append(_karpathy(name, NEAR_MISS, [caption], scenes + number, scenes * SENTENCES + number))
        truth.append(told)
    _write_lines(folder / "truth" / "near-misses.jsonl", truth)
    return images


def describe_scene(scene: Scene, picture_size: int) -> dict[str, Any]:
    """Size, things with the boxes of their members in pixels, and the relations that hold between them, for JSON."""
    things = [
        {
            "shape": thing.shape,
            "colour": thing.colour,
            "size": thing.size,
            "texture": thing.texture,
            "count": thing.count,
            "boxes": members.tolist(),
        }
        for thing, members in zip(scene.things, boxes(scene, picture_size), strict=True)
    ]
    relations = [{"subject": r.subject, "relation": r.name, "object": r.object} for r in scene.relations]
    return {"size": [picture_size, picture_size], "things": things, "relations": relations}


def _karpathy(name: str, split: str, captions: Sequence[Caption], number: int, first: int) -> dict[str, Any]:
    """One picture in Karpathy's JSON; its sentences are numbered from `first` on."""
    return {
        "filename": name,
        "filepath": "pictures",
        "split": split,
        "imgid": number,
        "sentids": list(range(first, first + len(captions))),
        "sentences": [
            {"raw": c.text, "tokens": c.words, "sentid": sentence, "imgid": number}
            for sentence, c in enumerate(captions, first)
        ],
    }


def _caption(caption: Caption) -> dict[str, Any]:
    return {"text": caption.text, "words": caption.words, "things": [list(n) for n in caption.names]}


def _write_picture(path: Path, picture: Image.Image) -> None:
    """A PNG that is whole or not there; not forced to disk one by one, since a repeated run writes it again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = io.BytesIO()
    picture.save(data, "PNG", compress_level=4)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        aside.write_bytes(data.getvalue())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def _claim(folder: Path, settings: dict[str, Any]) -> None:
    """Note the settings in the folder, or check that they are the ones noted there."""
    noted = folder / SETTINGS
    if noted.exists():
        before = read_json(noted)
        if before != settings:
            told = ", ".join(f"{k} {v}" for k, v in before.items()) if isinstance(before, dict) else "others"
            raise DiptychError(
                f"holds scenes made with {told}; expected the same settings or another folder", where=folder
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DiptychError("expected a folder that is new or empty", where=folder)
    else:
        write_json(noted, settings)
