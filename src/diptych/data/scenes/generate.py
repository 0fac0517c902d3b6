"""Scene number i of seed s with its five sentences: always the same, however many others are asked for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diptych.data.scenes.dice import Dice
from diptych.data.scenes.layout import make_scene
from diptych.data.scenes.scene import Scene
from diptych.data.scenes.statement import Claim, Phrase, Statement
from diptych.data.scenes.words import TEMPLATES, Caption, caption

SENTENCES = 5
STYLES = 30_030  # enough for every choice of words to be independent of the others

# How many of a scene's things a sentence names.
NAMED = {1: ((1, 1.0),), 2: ((2, 0.85), (1, 0.15)), 3: ((3, 0.5), (2, 0.42), (1, 0.08))}


@dataclass(frozen=True)
class Captioned:
    """A scene with its sentences."""

    seed: int
    index: int
    scene: Scene
    captions: tuple[Caption, ...]

    @property
    def id(self) -> str:
        """A name that no other scene of this seed has."""
        return f"scene-{self.seed}-{self.index:06d}"


def captioned(seed: int, index: int) -> Captioned:
    """Scene number `index` of a seed, with its five sentences."""
    dice = Dice("scene", seed, index)
    scene = make_scene(dice)
    return Captioned(seed, index, scene, tuple(describe(scene, dice)))


def captioned_scenes(count: int, seed: int = 0) -> Iterator[Captioned]:
    """The first `count` scenes of a seed."""
    return (captioned(seed, index) for index in range(count))


def describe(scene: Scene, dice: Dice, number: int = SENTENCES) -> list[Caption]:
    """True sentences about a scene, no two in the same template."""
    captions: list[Caption] = []
    used: set[str] = set()
    while len(captions) < number:
        statement = state(scene, dice)
        free = [t for t in templates(statement) if t not in used]
        if free:
            template = dice.pick(free)
            used.add(template)
            captions.append(caption(template, statement))
    return captions


def templates(statement: Statement) -> tuple[str, ...]:
    """The templates that can say a statement."""
    claims = tuple("abc"[c.subject] + "abc"[c.object] for c in statement.claims)
    return TEMPLATES[len(statement.phrases), claims]


def state(scene: Scene, dice: Dice, about: str | None = None) -> Statement:
    """A true statement; `about` is an attribute that its first phrase must mention, or "relation"."""
    count = len(scene.things)
    named = dice.weighted(NAMED[count])
    if about == "relation":
        named = max(named, 2)
    things = dice.shuffled(range(count))[:named]
    claims: list[Claim] = []
    if named > 1 and (about == "relation" or dice.chance(0.8)):
        claims += _claim(scene, dice, things, 0, 1)
        if named > 2 and claims and dice.chance(0.4):
            claims += _claim(scene, dice, things, 1, 2)
    phrases = tuple(_describe(scene, dice, t, about if not i else None) for i, t in enumerate(things))
    return Statement(phrases, tuple(claims))


def _claim(scene: Scene, dice: Dice, things: Sequence[int], subject: int, object: int) -> list[Claim]:
    relations = [r.name for r in scene.relations if (r.subject, r.object) == (things[subject], things[object])]
    return [Claim(subject, dice.pick(relations), object, dice.below(3))] if relations else []


def _describe(scene: Scene, dice: Dice, index: int, about: str | None) -> Phrase:
    """A phrase that fits this thing and no other of the scene."""
    thing = scene.things[index]
    said = {
        "shape": dice.chance(0.93),
        "colour": dice.chance(0.85),
        "size": dice.chance(0.5),
        "texture": dice.chance(0.55),
    }
    if about in said:
        said[about] = True
    style = dice.below(STYLES)
    while True:
        phrase = Phrase(
            index,
            thing.count,
            thing.shape if said["shape"] else None,
            thing.colour if said["colour"] else None,
            thing.size if said["size"] else None,
            thing.texture if said["texture"] else None,
            style,
        )
        if any(said.values()) and sum(phrase.fits(t) for t in scene.things) == 1:
            return phrase
        unsaid = [name for name, is_said in said.items() if not is_said]
        said[dice.pick(unsaid)] = True
