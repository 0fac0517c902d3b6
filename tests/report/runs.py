"""Run folders made by hand: small, untrained, quick to report on."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from diptych.common.config import to_tree
from diptych.common.files import write_json
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.gpo import GPOConfig
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.camp import CAMPConfig
from diptych.matchers.catalog import MatcherConfig, build_matcher
from diptych.matchers.dive import DivEConfig
from diptych.matchers.mmca import MMCAConfig
from diptych.matchers.scan import SCANConfig
from diptych.matchers.vse import VSEConfig
from diptych.report.subject import Subject, look_at
from diptych.training.checkpoints import Position
from diptych.training.data import DataConfig, ScenesConfig, load_splits
from diptych.training.losses.hinge import HingeConfig
from diptych.training.recipe import Recipe, TrainingConfig
from tests.evaluation import tiny

IMAGE = FeatureConfig(feature_dim=438)
TEXT = GRUConfig(word_dim=6)
SCENES = ScenesConfig(train=6, validation=4, test=9)
KINDS: dict[str, MatcherConfig] = {
    "vse++": VSEConfig(dim=8, image=IMAGE, text=TEXT),
    "vse-infinity": VSEConfig(dim=8, image=IMAGE, text=TEXT, image_pool="gpo", text_pool="gpo"),
    "vse-infinity-features": VSEConfig(
        dim=8, image=IMAGE, text=TEXT, image_pool="gpo", text_pool="gpo", gpo=GPOConfig(features=True, hidden=4)
    ),
    "scan": SCANConfig(dim=8, image=IMAGE, text=TEXT),
    "camp": CAMPConfig(dim=8, image=IMAGE, text=TEXT),
    "camp-without-gates": CAMPConfig(dim=8, image=IMAGE, text=TEXT, gate="none"),
    "mmca": MMCAConfig(dim=8, image=IMAGE, text=TEXT, heads=2),
    "dive": DivEConfig(dim=8, image=IMAGE, text=TEXT, slots=3, iterations=2, heads=2, head_dim=4, feed_forward=2),
}
FIGURES = {
    "i2t/r@1": 10.0, "i2t/r@5": 20.0, "i2t/r@10": 30.0,
    "t2i/r@1": 5.0, "t2i/r@5": 15.0, "t2i/r@10": 25.0, "rsum": 105.0,
}  # fmt: skip


def recipe(
    model: MatcherConfig, data: DataConfig = SCENES, paper: str | None = None, row: str | None = None, name: str = "toy"
) -> Recipe:
    return Recipe(name, model, data, HingeConfig(), TrainingConfig(epochs=3), paper=paper, paper_row=row)


def write_run(
    folder: Path, told: Recipe, sentences: Sequence[str], position: Position | None = None, log: bool = True
) -> Path:
    """A run folder with an untrained model; `position` is where it is, at its end where nothing is said."""
    folder.mkdir(parents=True)
    write_json(folder / "recipe.json", to_tree(told))
    torch.manual_seed(0)
    matcher = build_matcher(told.model, WordTokenizer(Vocabulary.build(list(sentences), at_least=1)))
    for name in ("best", "last"):
        matcher.save_pretrained(folder / name)
    write_json(folder / "last" / "position.json", asdict(position or Position(3, 0, 30, 105.0, 2)))
    if log:
        write_log(folder / "metrics.jsonl")
    return folder


def write_log(path: Path) -> None:
    lines: list[dict[str, object]] = []
    for step in range(1, 31):
        lines.append({"step": step, "loss": 40 / step, "lr": 0.01 if step <= 20 else 0.001, "epoch": (step - 1) // 10})
        if step % 10 == 0:
            figures = {**FIGURES, "rsum": 75.0 + step}
            lines.append({"step": step, "epoch": (step - 1) // 10, "validation": figures})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def scenes_run(folder: Path, kind: str) -> Path:
    sentences = load_splits(SCENES).train.captions()[0]
    return write_run(folder, recipe(KINDS[kind]), sentences)


def subject(case: str, count: int = 9) -> Subject:
    """A small untrained matcher with a small collection."""
    return look_at(tiny.matcher(case), tiny.collection(count), "test")
