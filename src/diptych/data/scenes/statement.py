"""What a sentence claims, apart from its wording, and whether a scene bears it out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from diptych.data.scenes.scene import Scene, Thing


@dataclass(frozen=True)
class Phrase:
    """There is a group of exactly `count` things of this kind; what is None is not said.

    `thing` is the one meant, by its number in the scene; `style` chooses among ways to say the same.
    """

    thing: int
    count: int
    shape: str | None
    colour: str | None
    size: str | None
    texture: str | None
    style: int = 0

    def fits(self, thing: Thing) -> bool:
        """Whether a thing is of this kind, whatever its count."""
        return (
            self.shape in (None, thing.shape)
            and self.colour in (None, thing.colour)
            and self.size in (None, thing.size)
            and self.texture in (None, thing.texture)
        )


@dataclass(frozen=True)
class Claim:
    """The phrase at position `subject` is related to the phrase at position `object`."""

    subject: int
    relation: str
    object: int
    style: int = 0


@dataclass(frozen=True)
class Statement:
    """All that a sentence claims: these things exist and are related so; nothing is said of what else there is."""

    phrases: tuple[Phrase, ...]
    claims: tuple[Claim, ...] = ()


def holds(scene: Scene, statement: Statement) -> bool:
    """Whether a statement is plainly true: each phrase fits one thing only, with its count, and relations are clear."""
    meant = []
    for phrase in statement.phrases:
        fitting = [i for i, thing in enumerate(scene.things) if phrase.fits(thing)]
        if len(fitting) != 1 or scene.things[fitting[0]].count != phrase.count:
            return False
        meant.append(fitting[0])
    if len(set(meant)) != len(meant):
        return False
    return all(scene.related(meant[c.subject], c.relation, meant[c.object]) for c in statement.claims)


def could_hold(scene: Scene, statement: Statement) -> bool:
    """Whether a statement is true in any reading at all; where it is not, it is false beyond argument.

    Here a phrase may mean several things together whose members add up to its count, two phrases may mean the same
    thing, and relations may hold by a little.
    """
    readings = [list(_readings(scene.things, phrase)) for phrase in statement.phrases]
    return any(
        all(
            any(scene.may_be_related(a, c.relation, b) for a in chosen[c.subject] for b in chosen[c.object] if a != b)
            for c in statement.claims
        )
        for chosen in product(*readings)
    )


def _readings(things: Sequence[Thing], phrase: Phrase) -> Iterator[tuple[int, ...]]:
    fitting = [i for i, thing in enumerate(things) if phrase.fits(thing)]
    for number in range(1, len(fitting) + 1):
        for chosen in combinations(fitting, number):
            if sum(things[i].count for i in chosen) == phrase.count:
                yield chosen
