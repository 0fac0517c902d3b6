"""The main job in one go, on drawn scenes: make them, train a small matcher, judge it, ask it."""

import time
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from diptych.data.collection import Collection
from diptych.data.scenes import captioned
from diptych.data.scenes.sheet import contact_sheet
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.evaluation.encode import encode_collection
from diptych.evaluation.evaluate import evaluate_matcher
from diptych.evaluation.result import Evaluation
from diptych.matchers.base import Matcher
from diptych.matchers.vse import VSEConfig
from diptych.training.data import ScenesConfig, load_splits
from diptych.training.loop import Device, train
from diptych.training.losses import HingeConfig
from diptych.training.optimisation import OptimiserConfig, ScheduleConfig
from diptych.training.recipe import Recipe, TrainingConfig

# Written by hand: nothing says that a test scene fits them exactly.
QUESTIONS = ("a big red star", "a blue circle above a green square", "three small dotted hearts")


@dataclass(frozen=True)
class Found:
    """One picture that a sentence found: its number among the test scenes, its score and what is drawn there."""

    number: int
    score: float
    caption: str


@dataclass(frozen=True)
class Answer:
    """A sentence, the pictures it found, best first, and the number of its own picture where it has one."""

    text: str
    own: int | None
    found: tuple[Found, ...]


@dataclass(frozen=True)
class Demo:
    """What the demo did."""

    run: Path
    pictures: int
    evaluation: Evaluation
    answers: tuple[Answer, ...]
    sheet: Path
    seconds: float


def demo_recipe(scenes: int = 1500, epochs: int = 4) -> Recipe:
    """A small VSE∞ that two cores train in a minute or two."""
    return Recipe(
        name="demo",
        model=VSEConfig(
            dim=128,
            image=FeatureConfig(feature_dim=438, projection="residual"),
            text=GRUConfig(word_dim=100),
            image_pool="gpo",
            text_pool="gpo",
        ),
        data=ScenesConfig(train=scenes, validation=max(20, scenes // 10), test=max(20, scenes // 5)),
        # With the hardest negative from the first step on, a new matcher would learn to say the same of everything.
        loss=HingeConfig(all_negatives_epochs=2, reduction="sum"),
        training=TrainingConfig(
            epochs=epochs,
            batch_size=64,
            clip=2.0,
            optimiser=OptimiserConfig(lr=2e-3),
            schedule=ScheduleConfig("cosine"),
        ),
    )


def run_demo(out: Path, recipe: Recipe | None = None) -> Demo | None:
    """Train (or go on, or find done already), judge and ask; None where training was stopped."""
    begun = time.perf_counter()
    recipe = recipe or demo_recipe()
    splits = load_splits(recipe.data)
    if not train(recipe, out, Device("cpu"), splits).finished:
        return None
    matcher = Matcher.from_pretrained(out / "best")
    evaluation = evaluate_matcher(matcher, splits.test).described(model=str(out), data="drawn scenes", split="test")
    evaluation.save(out / "evaluations")
    answers = _answers(matcher, splits.test)
    sheet = out / "answers.png"
    _draw(answers, splits.test).save(sheet)
    pictures = len(splits.train) + len(splits.validation) + len(splits.test)
    return Demo(out, pictures, evaluation, answers, sheet, time.perf_counter() - begun)


def _answers(matcher: Matcher, test: Collection) -> tuple[Answer, ...]:
    own = [0, len(test) // 3, 2 * len(test) // 3]
    texts = [(test.items[i].sentences[0].text, i) for i in own] + [(q, None) for q in QUESTIONS]
    images, _ = encode_collection(matcher, test)
    sentences = matcher.encode_texts([text for text, _ in texts])
    with matcher.inference():
        best = matcher.score(images, sentences).T.topk(3)
    answers = []
    for (text, number), scores, rows in zip(texts, best.values.tolist(), best.indices.tolist(), strict=True):
        found = [Found(r, s, test.items[r].sentences[0].text) for r, s in zip(rows, scores, strict=True)]
        answers.append(Answer(text, number, tuple(found)))
    return tuple(answers)


def _draw(answers: tuple[Answer, ...], test: Collection) -> Image.Image:
    entries = []
    for answer in answers:
        for place, found in enumerate(answer.found):
            metadata = test.items[found.number].metadata
            scene = captioned(int(metadata["seed"]), int(metadata["index"])).scene
            head = answer.text if place == 0 else f"{place + 1}."
            entries.append((scene, [head, f"{found.score:.3f}"]))
    return contact_sheet(entries, columns=3, picture_size=160)
