"""Near misses on real pictures: captions with one word changed, and statements that are true or false."""

from collections.abc import Sequence
from dataclasses import dataclass

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection
from diptych.data.statements import PictureStatement
from diptych.evaluation.foil_figures import FoilFigures, foil_figures, foil_pairs
from diptych.evaluation.pair_scores import score_texts
from diptych.evaluation.statement_figures import StatementFigures, place_statements, statement_figures
from diptych.evaluation.tables import Cell, FigureTable
from diptych.matchers.base import Matcher


@dataclass(frozen=True)
class RealNearMisses:
    """Figures of a matcher on a collection: of foils by kind of change, of statements by group of relations."""

    foils: dict[str, FoilFigures]
    statements: dict[str, StatementFigures]

    def flat(self) -> dict[str, float]:
        """For JSON: foil/colour, statement/projective/auc and so on, each with the ends of its interval."""
        figures: dict[str, float] = {}
        for kind, found in self.foils.items():
            figures |= found.flat(f"foil/{kind}")
        for group, of_group in self.statements.items():
            figures |= of_group.flat(f"statement/{group}")
        return figures


def real_near_misses(
    matcher: Matcher,
    collection: Collection,
    statements: Sequence[PictureStatement] = (),
    seed: int = 0,
    batch_size: int = 64,
) -> RealNearMisses:
    """How often the right sentence of two scores higher, and what true statements score beside false ones.

    statements: those on other pictures than the collection's are left aside

    >>> figures = real_near_misses(matcher, collection)
    >>> figures.foils["colour"].right.count  # "a red dog" alone says a colour
    1
    """
    pairs = foil_pairs(collection, seed)
    placed = place_statements(collection, statements)
    if statements and not placed:
        raise DiptychError(f"none of {len(statements)} statements is on one of these pictures", where=collection.name)
    if not pairs and not placed:
        raise DiptychError("near misses: no caption has a word that can be changed", where=collection.name)
    texts: list[list[str]] = [[] for _ in collection.items]
    for pair in pairs:
        texts[pair.picture] += [pair.sentence, pair.foil.text]
    for one in placed:
        opposite = one.statement.opposite
        texts[one.picture] += [one.statement.text, *([opposite] if opposite is not None else [])]
    own, other = score_texts(matcher, collection, texts, batch_size)
    return RealNearMisses(foil_figures(pairs, own, other), statement_figures(placed, own, other) if placed else {})


def foil_table(results: dict[str, RealNearMisses], title: str) -> FigureTable:
    """A kind of change a row, run after run."""
    rows: list[tuple[Cell, ...]] = []
    for name, result in results.items():
        for kind, found in result.foils.items():
            unseen = None if found.unseen is None else found.unseen.value
            rows.append((name, kind, found.right.told(), unseen, f"{found.right.count:,}", f"{found.right.pictures:,}"))
    return FigureTable(
        columns=("method", "changed", "right", "unseen", "pairs", "pictures"),
        rows=tuple(rows),
        title=title,
        notes=(
            "right: percent of pairs in which the caption scores above the changed one, ± half of the 95 %",
            "interval (bootstrap over pictures); unseen: the same beside another picture; chance is 50",
        ),
        records=[{"method": name, **result.flat()} for name, result in results.items()],
    )


def statement_table(results: dict[str, RealNearMisses], title: str) -> FigureTable:
    """A group of relations a row, run after run."""
    rows: list[tuple[Cell, ...]] = []
    for name, result in results.items():
        for group, found in result.statements.items():
            shares = (found.auc, found.accuracy, found.same_picture, found.opposite)
            rows.append(
                (
                    name,
                    group,
                    f"{found.statements:,}",
                    *(None if one is None else one.told() for one in shares),
                    None if found.unseen is None else found.unseen.value,
                )
            )
    return FigureTable(
        columns=("method", "relation", "count", "AUC", "accuracy", "pairs", "opposite", "unseen"),
        rows=tuple(rows),
        title=title,
        notes=(
            "AUC: true above false; accuracy: by the best threshold of the other half of the pictures;",
            "pairs: the true one of two on a picture above the false one; opposite: the true one above itself",
            "with the opposite relation, and unseen the same beside another picture; chance is 50; ± half of",
            "the 95 % interval (bootstrap over pictures)",
        ),
        records=[{"method": name, **result.flat()} for name, result in results.items()],
    )
