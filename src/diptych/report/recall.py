"""How good the run is: its figures under every protocol that it was evaluated with, beside the paper's row."""

from collections.abc import Mapping
from dataclasses import dataclass

from diptych.common.errors import DiptychError
from diptych.evaluation.figures import RECALLS
from diptych.evaluation.protocols import PICTURES, PROTOCOLS
from diptych.evaluation.published import PublishedRow
from diptych.evaluation.result import Evaluation
from diptych.report.axes import number
from diptych.report.parts import Section, section
from diptych.report.run_folder import RunFolder
from diptych.report.subject import Subject
from diptych.training.data import ScenesConfig
from diptych.training.paper_rows import PaperRow, paper_rows
from diptych.training.recipe import Recipe

HEADINGS = {
    "i2t/r@1": "R@1", "i2t/r@5": "R@5", "i2t/r@10": "R@10",
    "t2i/r@1": "R@1", "t2i/r@5": "R@5", "t2i/r@10": "R@10", "rsum": "RSUM",
}  # fmt: skip


@dataclass(frozen=True)
class RecallLine:
    """A line of the table: whose figures they are, where they were measured, and the figures by their keys."""

    name: str
    where: str
    figures: Mapping[str, str]
    ours: bool = False


def recall_section(run: RunFolder, subject: Subject | None, measured: Evaluation | None) -> Section:
    """The run's figures under every protocol that it was evaluated with, beside the paper's row."""
    found, notes, remarks = _papers(run.recipe)
    rows = [each.row for each in found]
    protocols = {row.protocol for row in rows}
    lines = [RecallLine(f"Paper: {row.label}", row.protocol or "", _printed(row)) for row in rows]
    for evaluation in run.evaluations.values():
        if evaluation.protocol == "eccv":
            remarks.append(_eccv(evaluation))
            continue
        figures = {key: f"{evaluation[key]:.1f}" for key in HEADINGS}
        where = f"{evaluation.protocol}, {evaluation.split or 'all'}: {_size(evaluation)}"
        lines.append(RecallLine("This run", where, figures, ours=True))
        remarks += evaluation.notes
        same = [each.row for each in found if each.fits(evaluation)]
        lines += [RecallLine("This run − paper", row.protocol or "", _gaps(evaluation, row)) for row in same]
        if not same and evaluation.protocol in protocols:
            notes.append(
                f"The paper's row is of {PICTURES[evaluation.protocol]:,} pictures, and this run's evaluation of "
                f"{evaluation.images:,}: the numbers cannot be held against each other."
            )
    if measured is not None and subject is not None and not _saved(run, subject, measured):
        part = f"drawn from {subject.whole:,}" if subject.sampled else "all"
        where = f"measured for this report on the {subject.split} split: {_size(measured)} ({part})"
        lines.append(RecallLine("This run", where, {key: f"{measured[key]:.1f}" for key in HEADINGS}, ours=True))
    if run.log.best is not None and all(key in run.log.best[1] for key in HEADINGS):
        epoch, figures_then = run.log.best
        told = {key: f"{figures_then[key]:.1f}" for key in HEADINGS}
        lines.append(RecallLine("This run, validation", f"epoch {epoch}, the best; while training", told))
    kept = {evaluation.protocol for evaluation in run.evaluations.values()}
    if not run.evaluations:
        named = "".join(f" --protocol {p}" for p in sorted(p for p in protocols if p)[:1])
        notes.append(f"The run has no saved evaluation; `diptych evaluate RUN{named}` makes one for the next report.")
    elif protocols and not protocols & kept:
        wanted = sorted(p for p in protocols if p)
        notes.append(
            f"The paper's row was measured under {' or '.join(wanted)}, and this run under {', '.join(sorted(kept))}: "
            "the numbers cannot be held against each other."
            + (f" `diptych evaluate RUN --protocol {wanted[0]}` makes ones that can." if wanted else "")
        )
    notes += disagreements(run, subject, measured)
    values = {"notes": notes, "headings": HEADINGS, "lines": lines, "remarks": remarks}
    return section("recall", "Recall", values)


def _papers(recipe: Recipe) -> tuple[list[PaperRow], list[str], list[str]]:
    """The published rows of a recipe under every protocol, warnings, and remarks on where they are from."""
    if recipe.paper_row is None:
        what = "drawn scenes" if isinstance(recipe.data, ScenesConfig) else "this data"
        return [], [], [f"No paper reports numbers for this recipe on {what}: there is no row to set beside it."]
    if recipe.changed:
        keys = ", ".join(recipe.changed)
        return [], [], [f"The paper's numbers are left out: {keys} was changed, so this is not the paper's run."]
    try:
        found = paper_rows(recipe)
    except DiptychError as error:
        return [], [f"The paper's numbers are left out: {error}."], []
    tables = {each.table.id: each.table for each in found}.values()
    remarks = [f"Paper: {t.printed_as} of {t.paper_title} ({t.venue}). {t.caption}" for t in tables]
    remarks += [f"{each.row.label}: {each.row.note}" for each in found if each.row.note]
    return found, [], list(dict.fromkeys(remarks))


def _printed(row: PublishedRow) -> dict[str, str]:
    told = {}
    for key in HEADINGS:
        value = row.values.get(key)
        if value is not None:
            told[key] = f"{value:g}?" if key in row.doubtful else f"{value:g}"
    six = [row.values.get(key) for key in RECALLS]
    if "rsum" not in told and all(v is not None for v in six) and not row.doubtful:
        told["rsum"] = f"{sum(v for v in six if v is not None):.1f}"
    return told


def _gaps(evaluation: Evaluation, row: PublishedRow) -> dict[str, str]:
    gaps = {}
    for key in HEADINGS:
        value = row.values.get(key)
        if value is not None and key not in row.doubtful:
            gaps[key] = f"{evaluation[key] - value:+.1f}"
    six = [row.values.get(key) for key in RECALLS]
    if "rsum" not in gaps and all(v is not None for v in six) and not row.doubtful:
        gaps["rsum"] = f"{evaluation['rsum'] - sum(v for v in six if v is not None):+.1f}"
    return gaps


def _size(evaluation: Evaluation) -> str:
    return f"{evaluation.images:,} pictures, {evaluation.sentences:,} sentences"


def _eccv(evaluation: Evaluation) -> str:
    told = ", ".join(f"{key.removeprefix('eccv/')} {number(value, 4)}" for key, value in evaluation.figures.items())
    return f"{PROTOCOLS['eccv']}, {evaluation.split}: {told}."


def _alike(evaluation: Evaluation, subject: Subject, measured: Evaluation) -> bool:
    """Whether an evaluation was made of the very pictures and sentences that the report looks at."""
    return (
        evaluation.protocol in ("all-pairs", "flickr30k", "coco-5k")
        and evaluation.split == subject.split
        and (evaluation.images, evaluation.sentences) == (measured.images, measured.sentences)
    )


def _saved(run: RunFolder, subject: Subject, measured: Evaluation) -> bool:
    return any(
        _alike(e, subject, measured) and abs(e["rsum"] - measured["rsum"]) <= 1 for e in run.evaluations.values()
    )


def disagreements(run: RunFolder, subject: Subject | None, measured: Evaluation | None) -> list[str]:
    """Evaluations that the model of today does not bear out: it was trained on since, or the data changed."""
    if subject is None or measured is None:
        return []
    return [
        f"The saved evaluation {name} has an RSUM of {e['rsum']:.1f}, and the model now {measured['rsum']:.1f} on as "
        "many pictures: the run went on, or its data changed, since. "
        f"`diptych evaluate RUN --protocol {e.protocol}` renews it."
        for name, e in run.evaluations.items()
        if _alike(e, subject, measured) and abs(e["rsum"] - measured["rsum"]) > 1
    ]
