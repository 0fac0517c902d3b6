"""The published rows that a run may stand beside: of its dataset, its variant and its features, and no others.

A recipe, or a variant of it, names its own row; a variant never inherits the recipe's. What is changed on the command
line, and evaluations of another number of pictures, have none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from diptych.common.errors import DiptychError
from diptych.evaluation.protocols import DATASETS, PICTURES
from diptych.evaluation.published import PublishedRow, PublishedTable, published
from diptych.evaluation.result import Evaluation
from diptych.training.recipe import Recipe


@dataclass(frozen=True)
class PaperRow:
    """A published row and the table that it stands in."""

    table: PublishedTable
    row: PublishedRow

    def fits(self, evaluation: Evaluation) -> bool:
        """Whether an evaluation is of the paper's protocol and of as many pictures."""
        protocol = self.row.protocol
        return protocol == evaluation.protocol and PICTURES.get(protocol or "") == evaluation.images


def paper_rows(recipe: Recipe) -> list[PaperRow]:
    """Every published row of what a recipe trains, in the order of its tables: at most one a protocol and table.

    >>> paper_rows(read_recipe(Path("recipe.toml")))  # it names no paper
    []
    """
    if recipe.paper_row is None or recipe.changed:
        return []
    rows = []
    for id in recipe.papers:
        table = published(id)
        named = [row for row in table.rows if recipe.paper_row in (row.method, row.label, row.address)]
        if len({row.label for row in named}) != 1:
            table.row(recipe.paper_row)  # says what rows there are, or which of them are meant
        datasets = {name for name, protocols in DATASETS.items() if any(row.protocol in protocols for row in named)}
        if recipe.dataset is None and len(datasets) > 1:
            raise DiptychError(
                f"{recipe.name}: dataset: {recipe.paper_row!r} of {id} is of {' and of '.join(sorted(datasets))}; "
                "expected one of them"
            )
        protocols = DATASETS[recipe.dataset] if recipe.dataset else tuple(PICTURES)
        rows += [PaperRow(table, row) for row in named if row.protocol in protocols]
    return rows


def row_beside(recipe: Recipe, evaluations: Sequence[Evaluation]) -> PublishedRow | None:
    """The published row that evaluations of a recipe's runs, all under one protocol, stand beside."""
    fitting = [found.row for found in paper_rows(recipe) if all(found.fits(e) for e in evaluations)]
    return fitting[0] if fitting else None


def protocol_of(recipes: Sequence[Recipe]) -> str:
    """How a recipe and its variants are judged: as their first published row was, else as their dataset is."""
    for recipe in recipes:
        for found in paper_rows(recipe):
            if found.row.protocol is not None:
                return found.row.protocol
    dataset = recipes[0].dataset
    return "all-pairs" if dataset is None else DATASETS[dataset][0]
