"""A recipe: model, data, loss and training in one TOML file, with its variants inside it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from diptych.common.bounds import check_bounds, check_share
from diptych.common.config import Tree, merge, override, parse, read_json, read_toml
from diptych.common.errors import DiptychError, nearest
from diptych.matchers.catalog import MatcherConfig
from diptych.training.data import DataConfig
from diptych.training.losses.catalog import LossConfig
from diptych.training.neighbours import NeighboursConfig
from diptych.training.optimisation import OptimiserConfig, ScheduleConfig
from diptych.training.terms.catalog import TERMS

# What a command line may set without making another experiment of a recipe.
SAME_RUN = frozenset({
    "name", "dataset", "paper", "paper_row", "data.path", "data.features", "data.images", "data.vocabulary",
    "training.seed", "training.workers", "training.precision", "training.compile", "training.score_rows",
    "training.hold_pictures", "training.hold_features", "training.hold_sentences", "training.checkpoint_steps",
    "training.tensorboard",
})  # fmt: skip


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
    foils: captions of each picture that come along with one word changed, as negatives of all pictures
    neighbours: batches are made of groups of pictures that a model finds alike
    hold_pictures: side of the squares that pictures are kept at on the training device, each decoded only once
    hold_features: local features are read once and stay on the training device, in the precision of their file
    hold_sentences: what a frozen text backbone makes of the sentences is computed once and stays there too
    accumulate: parts that a batch is encoded in, to bound memory; the loss and its gradient are the whole batch's
    average: decay of a running average of the weights, which is what is evaluated and kept as the model
    compile: run the backbones, DivE's sets and the terms as compiled kernels: fewer and larger, after a minute
    score_rows: pictures scored at a time; by default as many as fit into bounded memory
    patience: epochs without a better validation RSUM before stopping
    evaluate_epochs: epochs between evaluations on the validation split; the last epoch always has one
    checkpoint_steps: steps between checkpoints; each evaluation has one in any case
    tensorboard: also write TensorBoard's files; wandb: also tell Weights & Biases, in the project of this name
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
    foils: int = 0
    neighbours: NeighboursConfig | None = None
    hold_pictures: int | None = None
    hold_features: bool = False
    hold_sentences: bool = False
    accumulate: int = 1
    average: float | None = None
    compile: bool = False
    score_rows: int | None = None
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    workers: int = 0
    patience: int | None = None
    evaluate_epochs: int = 1
    checkpoint_steps: int | None = None
    tensorboard: bool = False
    wandb: str | None = None

    def __post_init__(self) -> None:
        check_bounds(self, "epochs", "batch_size", "accumulate", "evaluate_epochs", low=1)
        check_bounds(self, "score_rows", "patience", "checkpoint_steps", "hold_pictures", low=1)
        check_bounds(self, "seed", "workers", "foils", "multipliers", "frozen_epochs", "terms", low=0)
        check_bounds(self, "clip", above=0)
        check_bounds(self, "drop_regions", "drop_words", low=0, high=1)
        check_share(self, "average")
        if self.neighbours is not None and self.sampler == "captions":
            raise ValueError("neighbours: groups pictures; expected the sampler one-caption or all-captions")
        if self.wandb == "":
            raise ValueError("wandb: expected the name of a project, got ''")
        if self.hold_sentences and (self.drop_words > 0 or self.foils > 0):
            raise ValueError("hold_sentences: drop_words and foils make other sentences each time; expected 0 of both")
        for name in self.terms:
            if name not in TERMS:
                raise ValueError(f"terms: there is no term {name!r}; {nearest(name, list(TERMS))}")


@dataclass(frozen=True)
class Recipe:
    """Everything that a run needs, resolved.

    dataset: which of the papers' datasets this is, where it is one
    paper: the published tables that results are shown beside, such as "camp/table-3"; paper_row: their row for this
        very recipe. A variant has its own or none
    changed: what the command line changed of it, but for where things lie and how the machine works

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
    dataset: Literal["flickr30k", "coco"] | None = None
    paper: str | tuple[str, ...] | None = None
    paper_row: str | None = None
    changed: tuple[str, ...] = ()

    @property
    def papers(self) -> tuple[str, ...]:
        """The published tables, however many."""
        if self.paper is None:
            return ()
        return (self.paper,) if isinstance(self.paper, str) else self.paper


def read_recipe(path: Path, variant: str | None = None, assignments: tuple[str, ...] = ()) -> Recipe:
    """A recipe file with one of its variants and `key=value` overrides laid over it.

    >>> recipe = read_recipe(Path("recipe.toml"), "order", ("training.epochs=2",))
    >>> recipe.model.similarity, recipe.training.epochs
    ('order', 2)
    """
    tree = read_toml(path)
    variants = _variants(tree.pop("variants", {}), path)
    if variant is not None:
        if variant not in variants:
            raise DiptychError(f"{path}: no variant {variant!r}; {nearest(variant, list(variants))}")
        tree.pop("paper_row", None)  # it is of the recipe itself
        tree = merge(tree, variants[variant])
        tree["variant"] = variant
    tree.setdefault("name", path.stem)
    tree = override(tree, assignments)
    keys = [assignment.partition("=")[0].strip().replace("-", "_") for assignment in assignments]
    tree["changed"] = [key for key in keys if key not in SAME_RUN]
    return parse(Recipe, tree, str(path))


def variant_names(path: Path) -> list[str]:
    """The names of a recipe's variants, in the file's order."""
    return list(_variants(read_toml(path).get("variants", {}), path))


def _variants(table: object, path: Path) -> Tree:
    """A recipe's variants, each of them a table of changes."""
    if not isinstance(table, dict):
        raise DiptychError(f"expected a table, got {table!r}", where=f"{path}: variants")
    for name, changes in table.items():
        if not isinstance(changes, dict):
            raise DiptychError(f"expected a table of changes, got {changes!r}", where=f"{path}: variants.{name}")
    return table


def load_run_recipe(run: Path) -> Recipe:
    """The resolved recipe of a run folder."""
    path = run / "recipe.json"
    tree = read_json(path)
    if not isinstance(tree, dict):
        raise DiptychError(f"{path}: expected an object")
    return parse(Recipe, tree, str(path))
