"""What is in a drawn scene, apart from how it is drawn and what is said of it.

Lengths are parts of the picture's side, from 0 at the left and the top to 1 at the right and the bottom, so that one
scene can be drawn at any size.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

SHAPES = ("circle", "square", "triangle", "star", "cross", "ring", "diamond", "heart", "moon", "arrow")
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white")
SIZES = ("small", "big")
TEXTURES = ("plain", "striped", "dotted", "checked")
COUNTS = (1, 2, 3, 4)
RELATIONS = ("left of", "right of", "above", "below", "inside", "around")
ATTRIBUTES = ("shape", "colour", "size", "texture", "count", "relation")

CONVERSE = {
    "left of": "right of",
    "right of": "left of",
    "above": "below",
    "below": "above",
    "inside": "around",
    "around": "inside",
}

# How far from its centre a shape of radius 1 has room for another, where it can hold one.
ROOM = {"circle": 0.84, "square": 0.66, "ring": 0.56, "diamond": 0.54}

# Two centres that are closer than this in height or across are level: the eye may see either as the higher one.
LEVEL = 0.06

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Place:
    """Where one member of a thing is: its centre, the radius of the circle that holds it, its turn in degrees."""

    x: float
    y: float
    radius: float
    angle: int = 0

    @property
    def box(self) -> Box:
        """The square around the circle: x0, y0, x1, y1."""
        return self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius


@dataclass(frozen=True)
class Thing:
    """One object, or a group of up to four of the same kind; `tint` moves its colour a little (red, green, blue)."""

    shape: str
    colour: str
    size: str
    texture: str
    places: tuple[Place, ...]
    tint: tuple[int, int, int] = (0, 0, 0)

    @property
    def count(self) -> int:
        """How many members there are."""
        return len(self.places)

    @cached_property
    def box(self) -> Box:
        """The box around all members: x0, y0, x1, y1."""
        boxes = [place.box for place in self.places]
        return (
            min(b[0] for b in boxes),
            min(b[1] for b in boxes),
            max(b[2] for b in boxes),
            max(b[3] for b in boxes),
        )

    @property
    def centre(self) -> tuple[float, float]:
        """The middle of that box."""
        x0, y0, x1, y1 = self.box
        return (x0 + x1) / 2, (y0 + y1) / 2


@dataclass(frozen=True)
class Background:
    """A soft slope between two pale colours in a direction (degrees), with one lighter patch at x, y."""

    first: tuple[int, int, int]
    second: tuple[int, int, int]
    angle: int
    x: float
    y: float


@dataclass(frozen=True)
class Relation:
    """Thing number `subject` is, for instance, `left of` thing number `object`."""

    subject: int
    name: str
    object: int


@dataclass(frozen=True)
class Scene:
    """Up to three things on a background."""

    things: tuple[Thing, ...]
    background: Background

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """Every relation that plainly holds between two things."""
        return tuple(
            Relation(i, name, j) for i, j in _pairs(len(self.things)) for name in RELATIONS if self.related(i, name, j)
        )

    def related(self, subject: int, name: str, object: int) -> bool:
        """Whether a relation plainly holds: nobody who looks at the picture would deny it.

        Beside, above and below need a clear gap, in a direction that is not too far from straight.
        """
        if name in ("right of", "below", "around"):
            return self.related(object, CONVERSE[name], subject)
        a, b = self.things[subject], self.things[object]
        if name == "inside":
            return _holds_inside(a, b)
        along = 0 if name == "left of" else 1
        ahead = b.centre[along] - a.centre[along]
        aside = abs(b.centre[1 - along] - a.centre[1 - along])
        return a.box[2 + along] <= b.box[along] and ahead >= 0.6 * aside

    def may_be_related(self, subject: int, name: str, object: int) -> bool:
        """Whether somebody might say that the relation holds, be it by a little or not quite."""
        if name in ("right of", "below", "around"):
            return self.may_be_related(object, CONVERSE[name], subject)
        a, b = self.things[subject], self.things[object]
        if _holds_inside(a, b) or _holds_inside(b, a):
            return name == "inside" and _holds_inside(a, b)
        if name == "inside":
            return all(b.box[0] < p.x < b.box[2] and b.box[1] < p.y < b.box[3] for p in a.places)
        along = 0 if name == "left of" else 1
        return a.centre[along] < b.centre[along] + LEVEL


def _holds_inside(inner: Thing, outer: Thing) -> bool:
    if outer.count != 1 or outer.shape not in ROOM:
        return False
    o = outer.places[0]
    room = ROOM[outer.shape] * o.radius
    return all(((p.x - o.x) ** 2 + (p.y - o.y) ** 2) ** 0.5 + p.radius <= room for p in inner.places)


def _pairs(count: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(count) for j in range(count) if i != j)
