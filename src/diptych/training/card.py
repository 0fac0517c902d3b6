"""The model card of a checkpoint: what it is, what it was trained on, its figures."""

import json

from diptych import __version__
from diptych.common.config import to_tree
from diptych.training.checkpoints import Position
from diptych.training.recipe import Recipe

KEYS = ["i2t/r@1", "i2t/r@5", "i2t/r@10", "t2i/r@1", "t2i/r@5", "t2i/r@10", "rsum"]


def model_card(recipe: Recipe, position: Position, figures: dict[str, float]) -> str:
    """Markdown with the front matter that the hub reads."""
    title = recipe.name if recipe.variant is None else f"{recipe.name}, variant {recipe.variant}"
    lines = [
        "---",
        "library_name: diptych",
        "pipeline_tag: zero-shot-image-classification",
        f"tags: [image-text-matching, {recipe.model.kind}]",
        "---",
        f"# {title}",
        "",
        f"A `{recipe.model.kind}` matcher of pictures and sentences, trained with Diptych {__version__}"
        f" for {position.total} steps ({position.epoch} whole epochs).",
        "",
        "```python",
        "from diptych import Matcher",
        "",
        'matcher = Matcher.from_pretrained("this-folder")',
        'scores = matcher.similarity(["picture.jpg"], ["a sentence"])',
        "```",
    ]
    if figures:
        lines += ["", "## Validation", "", *_table(figures)]
    lines += ["", "## Recipe", "", "```json", json.dumps(to_tree(recipe), indent=2, ensure_ascii=False), "```", ""]
    return "\n".join(lines)


def _table(figures: dict[str, float]) -> list[str]:
    """One line of recalls; of several sets a line each, and their mean."""
    sets = [key.removesuffix("/rsum") for key in figures if key.endswith("/rsum")]
    if not sets:
        return [_line(KEYS), "|" + "---|" * len(KEYS), _line(_cells(figures))]
    named = [_line([name, *_cells(figures, f"{name}/")]) for name in sets]
    return [_line(["set", *KEYS]), "|" + "---|" * (1 + len(KEYS)), *named, _line(["mean", *_cells(figures)])]


def _cells(figures: dict[str, float], prefix: str = "") -> list[str]:
    return [f"{figures[prefix + key]:.1f}" for key in KEYS]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
