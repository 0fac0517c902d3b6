"""Near misses: sentences and pictures that differ from the right ones in one attribute, and are wrong for it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from PIL import Image

from diptych.data.scenes.dice import Dice
from diptych.data.scenes.draw import PICTURE_SIZE, draw
from diptych.data.scenes.generate import state, templates
from diptych.data.scenes.layout import group, is_clear, make_scene, moved, place
from diptych.data.scenes.scene import (
    ATTRIBUTES,
    COLOURS,
    COUNTS,
    RELATIONS,
    SHAPES,
    SIZES,
    TEXTURES,
    Place,
    Scene,
    Thing,
)
from diptych.data.scenes.statement import Statement, could_hold, holds
from diptych.data.scenes.words import Caption, caption

TRIES = 12


@dataclass(frozen=True)
class NearMiss:
    """A sentence that is true of a scene, and one that differs in one attribute and is false of it."""

    sentence: Caption
    wrong: Caption
    attribute: str


@dataclass(frozen=True)
class NearMissPair:
    """Two scenes and two sentences that differ in one attribute.

    `sentence` is true of `scene` and false of `other`; `wrong` is true of `other` and false of `scene`. Which of the
    two is called right was decided by chance, so that the sentences alone, or the pictures alone, give nothing away.
    """

    attribute: str
    scene: Scene
    other: Scene
    sentence: Caption
    wrong: Caption

    def picture(self, size: int = PICTURE_SIZE) -> Image.Image:
        """The scene that the sentence fits."""
        return draw(self.scene, size)

    def other_picture(self, size: int = PICTURE_SIZE) -> Image.Image:
        """The scene that the wrong sentence fits."""
        return draw(self.other, size)


def near_misses(scene: Scene, dice: Dice) -> list[NearMiss]:
    """For each attribute that the scene allows, a true sentence and a false one; `relation` needs two things."""
    misses = []
    for attribute in ATTRIBUTES:
        for _ in range(TRIES):
            statement = _state(scene, dice, attribute)
            if statement is None:
                continue
            changed = _changed(statement, attribute, dice)
            if not could_hold(scene, changed):
                template = dice.pick(templates(statement))
                misses.append(NearMiss(caption(template, statement), caption(template, changed), attribute))
                break
    return misses


def near_miss_set(count: int, seed: int = 0) -> list[NearMissPair]:
    """`count` pairs, the six attributes in turn; pair number i of a seed does not depend on how many are asked for."""
    return [near_miss_pair(seed, index) for index in range(count)]


def near_miss_pair(seed: int, index: int) -> NearMissPair:
    """Pair number `index` of a seed, about attribute number `index` modulo six."""
    dice = Dice("near miss", seed, index)
    attribute = ATTRIBUTES[index % len(ATTRIBUTES)]
    while True:
        scene = make_scene(dice)
        statement = _state(scene, dice, attribute)
        if statement is None:
            continue
        for other, changed in _variants(scene, statement, attribute, dice):
            if not (holds(other, changed) and not could_hold(other, statement) and not could_hold(scene, changed)):
                continue
            template = dice.pick(templates(statement))
            right, wrong = caption(template, statement), caption(template, changed)
            if dice.chance(0.5):
                return NearMissPair(attribute, scene, other, right, wrong)
            return NearMissPair(attribute, other, scene, wrong, right)


def _state(scene: Scene, dice: Dice, attribute: str) -> Statement | None:
    """A true statement that mentions the attribute, in its first phrase or its first claim."""
    if attribute == "relation" and len(scene.things) < 2:
        return None
    statement = state(scene, dice, attribute)
    if attribute == "relation" and not statement.claims:
        return None
    return statement


def _changed(statement: Statement, attribute: str, dice: Dice) -> Statement:
    """The statement with another value of the attribute."""
    if attribute == "relation":
        claim = statement.claims[0]
        name = dice.pick([r for r in RELATIONS if r != claim.relation])
        return replace(statement, claims=(replace(claim, relation=name), *statement.claims[1:]))
    first = statement.phrases[0]
    if attribute == "count":
        other = replace(first, count=dice.pick([c for c in COUNTS if c != first.count]))
    elif attribute == "shape":
        other = replace(first, shape=dice.pick([s for s in SHAPES if s != first.shape]))
    elif attribute == "colour":
        other = replace(first, colour=dice.pick([c for c in COLOURS if c != first.colour]))
    elif attribute == "size":
        other = replace(first, size=dice.pick([s for s in SIZES if s != first.size]))
    else:
        other = replace(first, texture=dice.pick([t for t in TEXTURES if t != first.texture]))
    return replace(statement, phrases=(other, *statement.phrases[1:]))


def _variants(scene: Scene, statement: Statement, attribute: str, dice: Dice) -> Iterator[tuple[Scene, Statement]]:
    """Other scenes, each with the statement changed to fit it; only the attribute differs."""
    if attribute == "relation":
        yield from _rearranged(scene, statement, dice)
        return
    changed = _changed(statement, attribute, dice)
    wanted = changed.phrases[0]
    old = scene.things[wanted.thing]
    kind = Thing(
        wanted.shape or old.shape,
        wanted.colour or old.colour,
        wanted.size or old.size,
        wanted.texture or old.texture,
        old.places,
        old.tint,
    )
    candidates = _regrouped(scene, wanted.thing, kind, wanted.count, dice) if attribute in ("size", "count") else [kind]
    kinds = [(t.shape, t.colour) for i, t in enumerate(scene.things) if i != wanted.thing]
    for candidate in candidates:
        other = _with(scene, wanted.thing, candidate)
        if (candidate.shape, candidate.colour) not in kinds and other.relations == scene.relations:
            yield other, changed


def _regrouped(scene: Scene, index: int, kind: Thing, count: int, dice: Dice) -> Iterator[Thing]:
    """The thing with another size or number of members, where it was if there is room, else elsewhere."""
    if _is_nested(scene, index):
        return
    boxes = [t.box for i, t in enumerate(scene.things) if i != index]
    for _ in range(TRIES):
        made = group(dice, kind, count)
        if made is None:
            return
        there = moved(made, *scene.things[index].centre)
        if is_clear(there.box, boxes):
            yield there
        elsewhere = place(dice, made, boxes)
        if elsewhere is not None:
            yield elsewhere


def _rearranged(scene: Scene, statement: Statement, dice: Dice) -> Iterator[tuple[Scene, Statement]]:
    """The same things in other places, with the relation that then holds between the two of the first claim."""
    claim = statement.claims[0]
    a, b = statement.phrases[claim.subject].thing, statement.phrases[claim.object].thing
    if claim.relation in ("inside", "around"):
        others = list(_moved_away(scene, a if claim.relation == "inside" else b, dice))
    else:
        others = [*_mirrored(scene)]
        if not _is_nested(scene, a) and not _is_nested(scene, b):
            others += [*_swapped(scene, a, b), *_moved_away(scene, a, dice), *_moved_away(scene, b, dice)]
    for other in dice.shuffled(others):
        for relation in dice.shuffled([r.name for r in other.relations if (r.subject, r.object) == (a, b)]):
            yield other, replace(statement, claims=(replace(claim, relation=relation), *statement.claims[1:]))


def _swapped(scene: Scene, a: int, b: int) -> Iterator[Scene]:
    """The scene with two things in each other's places, where they fit there."""
    (ax, ay), (bx, by) = scene.things[a].centre, scene.things[b].centre
    new_a, new_b = moved(scene.things[a], bx - ax, by - ay), moved(scene.things[b], ax - bx, ay - by)
    rest = [t.box for i, t in enumerate(scene.things) if i not in (a, b)]
    if is_clear(new_a.box, [*rest, new_b.box]) and is_clear(new_b.box, rest):
        yield _with(_with(scene, a, new_a), b, new_b)


def _moved_away(scene: Scene, index: int, dice: Dice) -> Iterator[Scene]:
    """The scene with one thing in another free place."""
    thing = scene.things[index]
    x, y = thing.centre
    there = place(dice, moved(thing, -x, -y), [t.box for i, t in enumerate(scene.things) if i != index])
    if there is not None:
        yield _with(scene, index, there)


def _mirrored(scene: Scene) -> Iterator[Scene]:
    """The places mirrored, left to right and then upside down; the things themselves stay upright."""
    for x, y in ((-1, 1), (1, -1)):
        things = []
        for thing in scene.things:
            places = (Place(0.5 + x * (p.x - 0.5), 0.5 + y * (p.y - 0.5), p.radius, p.angle) for p in thing.places)
            things.append(replace(thing, places=tuple(places)))
        yield replace(scene, things=tuple(things))


def _is_nested(scene: Scene, index: int) -> bool:
    return any(r.name == "inside" and index in (r.subject, r.object) for r in scene.relations)


def _with(scene: Scene, index: int, thing: Thing) -> Scene:
    things = list(scene.things)
    things[index] = thing
    return replace(scene, things=tuple(things))
