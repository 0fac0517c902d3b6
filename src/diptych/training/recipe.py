"""A recipe: model, data, loss and training in one TOML file, with its variants inside it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from diptych.common.bounds import check_bounds, check_share
from diptych.common.config import merge, override, parse, read_json, read_toml
from diptych.common.errors import DiptychError, nearest
from diptych.matchers.catalog import MatcherConfig
from diptych.training.data import DataConfig
from diptych.training.losses.catalog import LossConfig
from diptych.training.optimisation import OptimiserConfig, ScheduleConfig
from diptych.training.terms.catalog import TERMS


@dataclass(frozen=True)
class TrainingConfig:
    """How the matcher is trained.

    batch_size: captions a step (`captions` sampler) or pictures a step (the others), over all processes together
    sampler: `captions`: each caption with its picture; `one-caption`: each picture with one caption drawn anew;
        `all-captions`: each picture with all its captions
    multipliers: learning-rate factors by parameter prefix, such as "text_encoder.backbone" = 0.1
    frozen_epochs: parameter prefixes that are not trained in the first so many epochs
    terms: weights of extra terms beside the loss
    drop_regions, drop_words: VSE∞'s size augmentation; augment: random crops and flips of pictures
    hold_pictures: side of the squares that pictures are kept at on the training device, each decoded only once
    average: decay of a running average of the weights, which is what is evaluated and kept as the model
    compile: run the backbones as compiled kernels in training: fewer and larger, after a minute of compiling
    score_rows: pictures scored at a time, recomputed in the backward pass, to bound memory; all at once by default
    patience: epochs without a better validation RSUM before stopping
    evaluate_epochs: epochs between evaluations on the validation split; the last epoch always has one
    checkpoint_steps: steps between checkpoints; each evaluation has one in any case
    """

    epochs: int = 25
    batch_size: int = 128
    sampler: Literal["captions", "one-caption", "all-captions"] = "captions"
    seed: int = 0
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    multipliers: dict[str, float] = field(default_factory=dict)
    frozen_epochs: dict[str, int] = field(default_factory=dict)
    clip: float | None = None
    terms: dict[str, float] = field(default_factory=dict)
    drop_regions: float = 0.0
    drop_words: float = 0.0
    augment: bool = False
    hold_pictures: int | None = None
    average: float | None = None
    compile: bool = False
    score_rows: int | None = None
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    workers: int = 0
    patience: int | None = None
    evaluate_epochs: int = 1
    checkpoint_steps: int | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        check_bounds(self, "epochs", "batch_size", "evaluate_epochs", low=1)
        check_bounds(self, "score_rows", "patience", "checkpoint_steps", "hold_pictures", low=1)
        check_bounds(self, "seed", "workers", "multipliers", "frozen_epochs", "terms", low=0)
        check_bounds(self, "clip", above=0)
        check_bounds(self, "drop_regions", "drop_words", low=0, high=1)
        check_share(self, "average")
        for name in self.terms:
            if name not in TERMS:
                raise ValueError(f"terms: there is no term {name!r}; {nearest(name, list(TERMS))}")


@dataclass(frozen=True)
class Recipe:
    """Everything that a run needs, resolved.

    paper: the published table that results are shown beside, such as "camp/table-3"; paper_row: its row

    >>> recipe = read_recipe(Path("recipe.toml"))
    >>> recipe.name, recipe.model.kind, recipe.loss.kind
    ('recipe', 'vse', 'hinge')
    """

    name: str
    model: MatcherConfig
    data: DataConfig
    loss: LossConfig
    training: TrainingConfig = field(default_factory=TrainingConfig)
    variant: str | None = None
    paper: str | None = None
    paper_row: str | None = None


def read_recipe(path: Path, variant: str | None = None, assignments: tuple[str, ...] = ()) -> Recipe:
    """A recipe file with one of its variants and `key=value` overrides laid over it.

    >>> recipe = read_recipe(Path("recipe.toml"), "order", ("training.epochs=2",))
    >>> recipe.model.similarity, recipe.training.epochs
    ('order', 2)
    """
    tree = read_toml(path)
    variants = tree.pop("variants", {})
    if variant is not None:
        if variant not in variants:
            raise DiptychError(f"{path}: no variant {variant!r}; {nearest(variant, list(variants))}")
        tree = merge(tree, variants[variant])
        tree["variant"] = variant
    tree.setdefault("name", path.stem)
    return parse(Recipe, override(tree, assignments), str(path))


def variant_names(path: Path) -> list[str]:
    """The names of a recipe's variants, in the file's order."""
    return list(read_toml(path).get("variants", {}))


def load_run_recipe(run: Path) -> Recipe:
    """The resolved recipe of a run folder."""
    path = run / "recipe.json"
    tree = read_json(path)
    if not isinstance(tree, dict):
        raise DiptychError(f"{path}: expected an object")
    return parse(Recipe, tree, str(path))
