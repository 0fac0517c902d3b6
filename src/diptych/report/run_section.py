"""What the run is: its recipe in words and whole, how far it came, its time and its parameters."""

import json
from collections.abc import Mapping

from diptych.common.config import to_tree
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import matcher_title
from diptych.report.parts import Section, section
from diptych.report.run_folder import RunFolder
from diptych.training.data import ScenesConfig
from diptych.training.recipe import Recipe

# Options that a kind does not look at.
UNUSED = {"adam": ("momentum",), "adamw": ("momentum",), "constant": ("factor",), "cosine": ("factor",)}


def run_section(run: RunFolder, matcher: Matcher | None) -> Section:
    """The recipe in words and whole, the time it took, and its parameters."""
    recipe = run.recipe
    told = [
        ("Recipe", run.name),
        ("Model", f"{matcher_title(recipe.model.kind)}, {recipe.model.dim} dimensions"),
        ("Pictures", _pictures(recipe)),
        ("Sentences", _sentences(recipe)),
        ("Data", _data(recipe)),
        ("Loss", _options(to_tree(recipe.loss))),
        ("Optimiser", _options(to_tree(recipe.training.optimiser))),
        ("Schedule", _options(to_tree(recipe.training.schedule))),
        (
            "Training",
            f"{recipe.training.epochs} epochs, batches of {recipe.training.batch_size} ({recipe.training.sampler}), "
            f"seed {recipe.training.seed}, {recipe.training.precision}",
        ),
        ("Progress", progress_of(run)),
        ("Time", _time(run)),
    ]
    if matcher is not None:
        told += parameters(matcher)
    tree = json.dumps(to_tree(recipe), indent=2, ensure_ascii=False)
    return section("run", "What the run is", {"facts": told, "recipe": tree})


def parameters(matcher: Matcher) -> list[tuple[str, str]]:
    """How many numbers the model has, where they are, and how many are trained."""
    parts = {"image encoder": 0, "text encoder": 0, "where they meet": 0}
    trained = 0
    for name, parameter in matcher.named_parameters():
        side = name.split(".")[0].replace("_", " ")
        parts[side if side in parts else "where they meet"] += parameter.numel()
        trained += parameter.numel() if parameter.requires_grad else 0
    told = ", ".join(f"{count:,} in the {name}" if name in ("image encoder", "text encoder") else f"{count:,} {name}"
                     for name, count in parts.items() if count)  # fmt: skip
    total = sum(parts.values())
    return [("Parameters", f"{total:,}: {told}; {'all' if trained == total else f'{trained:,}'} trained")]


def progress_of(run: RunFolder) -> str:
    """How far a run came, in a sentence."""
    position, epochs = run.position, run.recipe.training.epochs
    if position is None:
        return f"no checkpoint yet; {epochs} epochs are planned"
    best = f"; the best was epoch {position.best_epoch + 1}" if position.best_epoch >= 0 else ""
    if run.finished:
        patience = f"training.patience of {run.recipe.training.patience} without a better validation RSUM"
        early = f", stopped early after {patience}" if position.epoch < epochs else ""
        return f"finished{early}: {position.epoch} of {epochs} epochs, {position.total:,} steps{best}"
    part = f" and {position.step:,} steps of the next" if position.step else ""
    return f"unfinished: {position.epoch} of {epochs} epochs{part}, {position.total:,} steps in all{best}"


def _pictures(recipe: Recipe) -> str:
    image = recipe.model.image
    if image.kind == "pixels":
        return f"pixels through {image.backbone}, {image.size} × {image.size}" + (", frozen" if image.frozen else "")
    if image.kind == "tower":
        return f"the vision tower of {image.name}" + (", frozen" if image.frozen else "")
    source = f", computed by {image.backbone}" if image.backbone else ""
    return f"local features of {image.feature_dim:,} numbers{source}, {image.projection} projection"


def _sentences(recipe: Recipe) -> str:
    text = recipe.model.text
    if text.kind == "gru":
        return f"{'bidirectional ' if text.bidirectional else ''}GRU, words of {text.word_dim} dimensions"
    return f"{text.name}" + (", frozen" if text.frozen else "")


def _data(recipe: Recipe) -> str:
    data = recipe.data
    if isinstance(data, ScenesConfig):
        return (
            f"drawn scenes of seed {data.seed}: {data.train:,} to train, {data.validation:,} to validate, "
            f"{data.test:,} to test; regions: {data.regions}"
        )
    return f"{' and '.join(data.paths)}, splits {', '.join(data.train)} / {data.validation} / {data.test}"


def _options(tree: Mapping[str, object]) -> str:
    hidden = {"kind", *UNUSED.get(str(tree["kind"]), ())}
    shown = [f"{k.replace('_', ' ')} {v}" for k, v in tree.items() if k not in hidden and v not in (None, False, [], 0)]
    return str(tree["kind"]) + (": " + ", ".join(shown) if shown else "")


def _time(run: RunFolder) -> str:
    if run.dates is None:
        return "not known"
    first, last = run.dates
    seconds = round((last - first).total_seconds())
    hours, rest = divmod(seconds, 3600)
    span = f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"
    return f"{span} from {first:%Y-%m-%d %H:%M} UTC, by the files' dates, pauses included"
