"""Outlines and textures as numbers: how much of each pixel a shape covers, computed from the distance to its edge."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

Floats = np.ndarray

TINY = 0.02  # less of a pixel than this is left out, so that boxes are tight


@dataclass(frozen=True)
class Stencil:
    """One shape ready to be laid on a picture; every array is (height, width), float32.

    `cover`: how much of a pixel it covers; `rim`: how much of that is its darker edge; `ink`: how much of it has the
    texture's second colour; `light`: the brightness; `left`, `top`: the corner's place from the centre, in pixels.
    """

    cover: Floats
    rim: Floats
    ink: Floats
    light: Floats
    left: int
    top: int


def _turned(points: Sequence[complex], degrees: float) -> list[complex]:
    turn = complex(np.cos(np.radians(degrees)), np.sin(np.radians(degrees)))
    return [p * turn for p in points]


def _arc(radius: float, first: float, last: float, steps: int, centre: complex = 0) -> list[complex]:
    angles = np.radians(np.linspace(first, last, steps))
    return [centre + complex(radius * np.cos(a), radius * np.sin(a)) for a in angles]


def _heart() -> list[complex]:
    t = np.linspace(0, 2 * np.pi, 36, endpoint=False)
    x = 16 * np.sin(t) ** 3
    y = -(13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t))
    points = x / 17.3 + 1j * (y - 2.5) / 17.3
    return [complex(p) for p in points]


def _moon() -> list[complex]:
    outer = _arc(0.94, 58, 302, 24)
    first, last = outer[0], outer[-1]
    middle = complex(0.56, 0)
    start, stop = np.degrees(np.angle([last - middle, first - middle]))
    return outer + _arc(abs(first - middle), start % 360, stop, 18, middle)[1:-1]


# Corners in a circle of radius 1, y pointing down. Sizes are chosen to look alike.
_CORNERS: dict[str, list[complex]] = {
    "square": [0.7 * c for c in (-1 - 1j, 1 - 1j, 1 + 1j, -1 + 1j)],
    "triangle": [-0.98j, 0.92 + 0.62j, -0.92 + 0.62j],
    "star": [
        p for k in range(5) for p in _turned([-1j, 0.44 * complex(np.sin(np.pi / 5), -np.cos(np.pi / 5))], 72 * k)
    ],
    "cross": [p for k in range(4) for p in _turned([-0.3 - 0.3j, -0.3 - 0.94j, 0.3 - 0.94j], 90 * k)],
    "diamond": [-1j, 0.66 + 0j, 1j, -0.66 + 0j],
    "heart": _heart(),
    "moon": _moon(),
    "arrow": [0.98 + 0j, 0.18 + 0.72j, 0.18 + 0.3j, -0.92 + 0.3j, -0.92 - 0.3j, 0.18 - 0.3j, 0.18 - 0.72j],
}
# A band around a circle: its middle and half its width.
_ROUND = {"circle": (0.0, 0.88), "ring": (0.75, 0.17)}


def _edge_distance(points: Floats, corners: Floats) -> Floats:
    """Signed distance of points (n,) to the polygon with these corners (m,), both complex: negative inside."""
    start, side = corners[:, None], (np.roll(corners, -1) - corners)[:, None]
    from_start = points[None] - start
    along = np.clip((from_start * side.conj()).real / np.abs(side) ** 2, 0, 1)
    distance = np.abs(from_start - along * side).min(0)
    stop = start + side
    spans = (start.imag > points.imag) != (stop.imag > points.imag)
    rise = np.where(side.imag == 0, 1, side.imag)
    crossing = start.real + (points.imag - start.imag) / rise * side.real
    inside = (spans & (points.real < crossing)).sum(0) % 2 == 1
    return np.where(inside, -distance, distance)


def _ink(texture: str, u: Floats, v: Floats, period: float) -> Floats:
    """How much of each pixel has the second colour; u, v are the distances in pixels along the shape's own axes."""
    if texture == "striped":
        return np.clip(0.5 + period * 0.22 - np.abs((v / period + 0.5) % 1 - 0.5) * period, 0, 1)
    if texture == "dotted":
        wide, high = period * 1.12, period * 0.97
        row = np.round(v / high)
        across = (u / wide + 0.5 * (row % 2) + 0.5) % 1 - 0.5
        return np.clip(0.5 + period * 0.3 - np.hypot(across * wide, v - row * high), 0, 1)
    if texture == "checked":
        a = np.clip(0.5 + period * 0.25 - np.abs((u / period + 0.5) % 1 - 0.5) * period, 0, 1)
        b = np.clip(0.5 + period * 0.25 - np.abs((v / period + 0.5) % 1 - 0.5) * period, 0, 1)
        return a + b - 2 * a * b
    return np.zeros_like(u)


@lru_cache(maxsize=10_000)
def _outline(shape: str, half_pixels: int, angle: int) -> tuple[Floats, Floats]:
    """Places along the shape's own axes as complex numbers, and distances to its edge, in pixels: (n, n) each."""
    radius = half_pixels / 2
    reach = int(np.ceil(radius)) + 2
    steps = np.arange(-reach, reach + 1, dtype=np.float64)
    turn = complex(np.cos(np.radians(angle)), -np.sin(np.radians(angle)))
    local = (steps[None, :] + 1j * steps[:, None]) * turn
    if shape in _ROUND:
        return local, np.abs(np.abs(local) - _ROUND[shape][0] * radius) - _ROUND[shape][1] * radius
    corners = np.array(_CORNERS[shape]) * radius
    return local, _edge_distance(local.ravel(), corners).reshape(local.shape)


@lru_cache(maxsize=20_000)
def stencil(shape: str, texture: str, half_pixels: int, angle: int, side: int) -> Stencil:
    """A shape of radius `half_pixels / 2`, turned by `angle` degrees, for pictures that are `side` pixels wide."""
    local, distance = _outline(shape, half_pixels, angle)
    cover = np.clip(0.5 - distance, 0, 1)
    cover[cover < TINY] = 0
    width = max(0.9, 0.011 * side)
    rim = np.clip(distance + width + 0.5, 0, 1)
    ink = _ink(texture, local.real, local.imag, max(3.6, 0.058 * side))
    reach = len(local) // 2
    down = np.arange(-reach, reach + 1) / max(half_pixels / 2, 1)
    light = np.broadcast_to((1.04 - 0.1 * down)[:, None], cover.shape)
    rows, columns = np.flatnonzero(cover.any(1)), np.flatnonzero(cover.any(0))
    top, left = int(rows[0]), int(columns[0])
    part = np.s_[top : rows[-1] + 1, left : columns[-1] + 1]
    kept = [np.ascontiguousarray(a[part], dtype=np.float32) for a in (cover, rim, ink, light)]
    return Stencil(kept[0], kept[1], kept[2], kept[3], left - reach, top - reach)
