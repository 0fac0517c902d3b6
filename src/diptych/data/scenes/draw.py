"""A scene as pixels, and the boxes of what is drawn."""

from functools import lru_cache

import numpy as np
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.scenes.scene import Background, Place, Scene, Thing
from diptych.data.scenes.shapes import Stencil, stencil

PICTURE_SIZE = 96

PAINT = {
    "red": (216, 48, 54),
    "orange": (243, 136, 28),
    "yellow": (250, 214, 50),
    "green": (56, 156, 78),
    "blue": (48, 100, 208),
    "purple": (128, 66, 178),
    "pink": (244, 138, 182),
    "brown": (126, 80, 48),
    "black": (46, 46, 54),
    "white": (252, 252, 250),
}
# The second colour of stripes, dots and checks: paler, or darker where the first is pale already.
INK = {
    "red": (250, 206, 200),
    "orange": (255, 232, 196),
    "yellow": (222, 158, 12),
    "green": (206, 238, 204),
    "blue": (200, 220, 250),
    "purple": (228, 206, 246),
    "pink": (255, 232, 242),
    "brown": (222, 192, 160),
    "black": (196, 196, 204),
    "white": (172, 178, 192),
}


def draw(scene: Scene, size: int = PICTURE_SIZE) -> Image.Image:
    """The picture, `size` pixels wide and high."""
    return Image.fromarray(pixels(scene, size))


def pixels(scene: Scene, size: int = PICTURE_SIZE) -> np.ndarray:
    """The picture as (size, size, 3) uint8."""
    canvas = background(scene.background, size)
    # Bigger things first: what lies inside another is seen.
    for thing in sorted(scene.things, key=lambda t: -t.places[0].radius):
        for place in thing.places:
            _lay(canvas, thing, place, size)
    return (canvas + 0.5).astype(np.uint8)


def boxes(scene: Scene, size: int = PICTURE_SIZE) -> list[np.ndarray]:
    """For each thing the boxes of its members: (members, 4) int64, x0 y0 x1 y1 in pixels, x1 and y1 just outside."""
    all_boxes = []
    for thing in scene.things:
        rows = []
        for place in thing.places:
            mark, left, top = _placed(thing, place, size)
            height, width = mark.cover.shape
            rows.append((left, top, left + width, top + height))
        all_boxes.append(np.array(rows, dtype=np.int64))
    return all_boxes


def background(ground: Background, size: int) -> np.ndarray:
    """The background alone: (size, size, 3) float32 from 0 to 255."""
    x, y = _axes(size)
    turn = np.radians(ground.angle)
    slope = np.cos(turn) * (x - 0.5) + np.sin(turn) * (y - 0.5) + 0.5
    slope = np.clip(slope, 0, 1)[..., None].astype(np.float32)
    first, second = np.array(ground.first, np.float32), np.array(ground.second, np.float32)
    patch = np.exp(-((x - ground.x) ** 2 + (y - ground.y) ** 2) / np.float32(0.12))
    canvas = first + (second - first) * slope + (9 * patch)[..., None]
    return np.clip(canvas, 0, 255)


def checked_size(size: int) -> int:
    """The size of a picture, if it is one that scenes can be drawn at."""
    if not 32 <= size <= 2048:
        raise DiptychError(f"picture size: {size} is not possible; expected 32 to 2048 pixels")
    return size


@lru_cache(maxsize=8)
def _axes(size: int) -> tuple[np.ndarray, np.ndarray]:
    steps = (np.arange(size, dtype=np.float32) + 0.5) / size
    return steps[None, :], steps[:, None]


def _placed(thing: Thing, place: Place, size: int) -> tuple[Stencil, int, int]:
    mark = stencil(thing.shape, thing.texture, round(2 * place.radius * size), place.angle, size)
    return mark, round(place.x * size) + mark.left, round(place.y * size) + mark.top


def _lay(canvas: np.ndarray, thing: Thing, place: Place, size: int) -> None:
    mark, left, top = _placed(thing, place, size)
    height, width = mark.cover.shape
    paint = np.array(PAINT[thing.colour], np.float32) + np.array(thing.tint, np.float32)
    second = np.array(INK[thing.colour], np.float32)
    colour = paint + (second - paint) * mark.ink[..., None]
    colour = np.minimum(colour * mark.light[..., None], 255)
    dark = paint * np.float32(0.62)
    colour += (dark - colour) * mark.rim[..., None]
    part = canvas[top : top + height, left : left + width]
    part += (np.clip(colour, 0, 255) - part) * mark.cover[..., None]
