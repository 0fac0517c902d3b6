"""Making scenes: which things, and where, so that none hides another unless it is meant to lie inside it."""

from collections.abc import Sequence

from diptych.data.scenes.dice import Dice
from diptych.data.scenes.scene import (
    COLOURS,
    ROOM,
    SHAPES,
    SIZES,
    TEXTURES,
    Background,
    Box,
    Place,
    Scene,
    Thing,
)

MARGIN = 0.03  # kept free along the picture's edge
GAP = 0.035  # kept free between things
RADIUS = {"small": 0.098, "big": 0.165}
FRAME = 0.2  # the least radius of a thing that holds another
CROWDED = {1: 1.0, 2: 0.95, 3: 0.88, 4: 0.82}  # members of a group are a little smaller
TILT = {
    "circle": 36, "square": 12, "triangle": 18, "star": 36, "cross": 12, "ring": 36, "diamond": 12, "heart": 18,
    "moon": 36, "arrow": 180,
}  # fmt: skip
TURN = 6  # angles are whole steps of this, so that few different shapes need be computed

# Pale, and none of them close to a colour that things have.
GROUNDS = (
    (224, 213, 188), (193, 209, 223), (203, 217, 190), (216, 202, 220), (203, 203, 198), (228, 206, 192),
    (187, 210, 207), (206, 204, 226),
)  # fmt: skip

# Where the members of a group stand, in diameters from its centre.
FORMATIONS: dict[int, tuple[tuple[tuple[float, float], ...], ...]] = {
    1: (((0.0, 0.0),),),
    2: (((-0.5, 0.0), (0.5, 0.0)), ((0.0, -0.5), (0.0, 0.5)), ((-0.45, -0.25), (0.45, 0.25))),
    3: (
        ((-0.5, 0.3), (0.5, 0.3), (0.0, -0.6)),
        ((-0.5, -0.3), (0.5, -0.3), (0.0, 0.6)),
        ((-1.0, 0.0), (0.0, 0.0), (1.0, 0.0)),
        ((0.0, -1.0), (0.0, 0.0), (0.0, 1.0)),
    ),
    4: (
        ((-0.5, -0.5), (0.5, -0.5), (-0.5, 0.5), (0.5, 0.5)),
        ((-1.5, 0.0), (-0.5, 0.0), (0.5, 0.0), (1.5, 0.0)),
        ((0.0, -1.5), (0.0, -0.5), (0.0, 0.5), (0.0, 1.5)),
        ((-0.75, 0.45), (0.25, 0.45), (-0.25, -0.45), (0.75, -0.45)),
    ),
}


def make_scene(dice: Dice) -> Scene:
    """A scene of one to three things."""
    while True:
        number = dice.weighted(((1, 0.1), (2, 0.42), (3, 0.48)))
        nested = number > 1 and dice.chance(0.2)
        kinds = _kinds(dice, number, nested)
        counts = [dice.weighted(((1, 0.4), (2, 0.23), (3, 0.19), (4, 0.18))) for _ in kinds]
        # Many tries, so that scenes with much in them are not the rarer for it.
        for _ in range(10):
            things = _arrange(dice, kinds, counts, nested)
            if things is not None:
                return Scene(tuple(dice.shuffled(things)), _background(dice))


def group(dice: Dice, thing: Thing, count: int) -> Thing | None:
    """The thing with `count` members of its own size around (0, 0); None where so many cannot be shown at once."""
    radius = RADIUS[thing.size] * CROWDED[count] * dice.between(0.94, 1.06)
    reach = 2 * radius * 1.06
    fitting = [f for f in FORMATIONS[count] if max(max(abs(x), abs(y)) for x, y in f) * reach + radius < 0.46]
    if not fitting:
        return None
    formation = dice.pick(fitting)
    places = tuple(
        Place(
            x * reach + dice.between(-0.004, 0.004) * (count > 1),
            y * reach + dice.between(-0.004, 0.004) * (count > 1),
            radius,
            _angle(dice, thing.shape),
        )
        for x, y in formation
    )
    return Thing(thing.shape, thing.colour, thing.size, thing.texture, places, thing.tint)


def place(dice: Dice, thing: Thing, others: Sequence[Box], tries: int = 30) -> Thing | None:
    """The thing somewhere in the picture clear of these boxes, or None where no such place was found."""
    x0, y0, x1, y1 = thing.box
    for _ in range(tries):
        x = dice.between(MARGIN - x0, 1 - MARGIN - x1)
        y = dice.between(MARGIN - y0, 1 - MARGIN - y1)
        if is_clear((x0 + x, y0 + y, x1 + x, y1 + y), others):
            return moved(thing, x, y)
    return None


def is_clear(box: Box, others: Sequence[Box]) -> bool:
    """Whether a box is in the picture and touches none of the others."""
    x0, y0, x1, y1 = box
    if min(x0, y0) < MARGIN - 1e-9 or max(x1, y1) > 1 - MARGIN + 1e-9:
        return False
    return all(x0 >= b[2] + GAP or b[0] >= x1 + GAP or y0 >= b[3] + GAP or b[1] >= y1 + GAP for b in others)


def moved(thing: Thing, x: float, y: float) -> Thing:
    """The thing moved by x and y."""
    places = tuple(Place(p.x + x, p.y + y, p.radius, p.angle) for p in thing.places)
    return Thing(thing.shape, thing.colour, thing.size, thing.texture, places, thing.tint)


def _arrange(dice: Dice, kinds: Sequence[Thing], counts: Sequence[int], nested: bool) -> list[Thing] | None:
    """The things in their places; where `nested`, the second inside the first, one of each."""
    placed: list[Thing] = []
    if nested:
        outer, inner = _nest(dice, kinds[0], kinds[1])
        where = place(dice, outer, ())
        if where is None:
            return None
        placed = [where, moved(inner, where.places[0].x, where.places[0].y)]
    groups = []
    for kind, count in list(zip(kinds, counts, strict=True))[len(placed) :]:
        made = group(dice, kind, count)
        if made is None:
            return None
        groups.append(made)
    # The widest first, which is easier to pack.
    for made in sorted(groups, key=lambda t: -_extent(t.box)):
        where = place(dice, made, [t.box for t in placed])
        if where is None:
            return None
        placed.append(where)
    return placed


def _kinds(dice: Dice, number: int, nested: bool) -> list[Thing]:
    """Things without places, no two of the same shape and colour, but often alike in one of them."""
    kinds: list[Thing] = []
    while len(kinds) < number:
        shape, colour = dice.pick(SHAPES), dice.pick(COLOURS)
        if kinds and dice.chance(0.3):
            alike = dice.pick(kinds)
            shape, colour = (alike.shape, colour) if dice.chance(0.5) else (shape, alike.colour)
        size, texture = dice.pick(SIZES), dice.pick(TEXTURES)
        if nested and not kinds:
            shape, size = dice.pick(tuple(ROOM)), "big"
        if nested and len(kinds) == 1:
            size = "small"
            if colour == kinds[0].colour:
                continue
        if all((shape, colour) != (k.shape, k.colour) for k in kinds):
            tint = (dice.below(17) - 8, dice.below(17) - 8, dice.below(17) - 8)
            kinds.append(Thing(shape, colour, size, texture, (), tint))
    return kinds


def _nest(dice: Dice, outer: Thing, inner: Thing) -> tuple[Thing, Thing]:
    """The two around (0, 0), the inner one within the outer one's room."""
    radius = dice.between(0.084, 0.1)
    frame = Place(0, 0, max(FRAME, radius / ROOM[outer.shape] * 1.12), _angle(dice, outer.shape))
    core = Place(0, 0, radius, _angle(dice, inner.shape))
    return (
        Thing(outer.shape, outer.colour, outer.size, outer.texture, (frame,), outer.tint),
        Thing(inner.shape, inner.colour, inner.size, inner.texture, (core,), inner.tint),
    )


def _background(dice: Dice) -> Background:
    first = dice.pick(GROUNDS)
    second = dice.pick([g for g in GROUNDS if g != first])
    return Background(first, second, dice.below(24) * 15, dice.between(0.1, 0.9), dice.between(0.1, 0.6))


def _angle(dice: Dice, shape: str) -> int:
    steps = TILT[shape] // TURN
    return (dice.below(2 * steps + 1) - steps) * TURN


def _extent(box: Box) -> float:
    return max(box[2] - box[0], box[3] - box[1])
