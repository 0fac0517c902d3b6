"""A region of a picture as one vector, by fixed rules on its pixels: what it looks like, how it is textured, where."""

import numpy as np
from PIL import Image

PATCH = 10
CELLS, DIRECTIONS = 3, 8
STEPS = tuple((x * far, y * far) for x, y in ((1, 0), (0, 1), (1, 1), (-1, 1)) for far in range(1, 7))
QUANTILES = np.linspace(0.05, 0.95, 10)
LENGTHS = np.array([0.12, 0.16, 0.2, 0.24, 0.3, 0.4])

PIXELS = PATCH * PATCH * 3
EDGES = CELLS * CELLS * DIRECTIONS
SPREAD = len(QUANTILES) * 3
PLACE = 6
DIM = PIXELS + EDGES + len(STEPS) + SPREAD + len(LENGTHS) + PLACE


def describe_region(picture: Image.Image, pixels: np.ndarray, box: tuple[int, int, int, int]) -> np.ndarray:
    """(438,) float32 for the box x0, y0, x1, y1 of a square picture, whose pixels are given as (size, size, 3) too.

    In this order: the region's pixels at 10 x 10 (300), how strong its edges are in 3 x 3 cells and 8 directions (72),
    how much brightness changes over 24 short steps (24), ten levels of red, green and blue each (30), its longer side
    against six lengths (6), and x0, y0, x1, y1, width, height as parts of the picture (6).
    """
    x0, y0, x1, y1 = box
    size = picture.width
    patch = np.asarray(picture.resize((PATCH, PATCH), Image.Resampling.BOX, box=box), dtype=np.float32)
    crop = pixels[y0:y1, x0:x1].astype(np.float32) / 255
    grey = crop.mean(2)
    ordered = np.sort(crop.reshape(-1, 3), axis=0)
    levels = ordered[(QUANTILES * len(ordered)).astype(int)].T
    longest = max(x1 - x0, y1 - y0) / size
    place = np.array([x0, y0, x1, y1, x1 - x0, y1 - y0], dtype=np.float32) / size
    parts = (
        patch.reshape(-1) / 127.5 - 1,
        _edges(grey),
        _changes(grey),
        levels.reshape(-1) * 2 - 1,
        np.tanh((longest - LENGTHS) / 0.03),
        place,
    )
    return np.concatenate(parts).astype(np.float32)


def _edges(grey: np.ndarray) -> np.ndarray:
    """Mean edge strength by cell and direction: (72,); an edge counts the same whichever side is the brighter one."""
    dx, dy = np.zeros_like(grey), np.zeros_like(grey)
    dx[:, 1:-1] = grey[:, 2:] - grey[:, :-2]
    dy[1:-1] = grey[2:] - grey[:-2]
    turn = np.arctan2(dy, dx) / np.pi * DIRECTIONS  # a whole turn is 2 * DIRECTIONS
    direction = np.floor(turn + 0.5).astype(int) % DIRECTIONS
    rows = np.arange(grey.shape[0]) * CELLS // grey.shape[0]
    columns = np.arange(grey.shape[1]) * CELLS // grey.shape[1]
    cell = rows[:, None] * CELLS + columns[None, :]
    slot = (cell * DIRECTIONS + direction).reshape(-1)
    strength = np.bincount(slot, np.hypot(dx, dy).reshape(-1), EDGES)
    return np.sqrt(strength * EDGES / grey.size)


def _changes(grey: np.ndarray) -> np.ndarray:
    """Mean change of brightness from a pixel to the one some steps away, against its spread: (24,)."""
    height, width = grey.shape
    spread = grey.std() + 0.02
    changes = np.zeros(len(STEPS))
    for i, (x, y) in enumerate(STEPS):
        if y < height and abs(x) < width:
            here = grey[: height - y, max(0, -x) : width - max(0, x)]
            there = grey[y:, max(0, x) : width - max(0, -x)]
            changes[i] = np.abs(there - here).sum() / (here.size * spread)
    return changes
