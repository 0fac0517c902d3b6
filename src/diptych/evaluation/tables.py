"""Tables as text, Markdown, LaTeX or JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from diptych.common.errors import DiptychError, nearest
from diptych.evaluation.compare import RunComparison
from diptych.evaluation.figures import RECALLS
from diptych.evaluation.published import PublishedRow, PublishedTable
from diptych.evaluation.result import Evaluation, prefixed

FORMATS = ("text", "markdown", "latex", "json")
Cell = str | float | None
_LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "∞": r"$\infty$",
          "α": r"$\alpha$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
          "−": "$-$", "→": r"$\to$", "✓": r"$\checkmark$", "✗": r"$\times$"}  # fmt: skip


@dataclass(frozen=True)
class FigureTable:
    """Rows of cells under headings; numbers are shown with `digits` decimals, or as they come; nothing as a dash.

    records: what JSON shows in place of the cells
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    digits: int | None = 1
    records: list[dict[str, object]] = field(default_factory=list)

    def cells(self) -> list[list[str]]:
        """Every row as text."""
        return [[self._shown(cell) for cell in row] for row in self.rows]

    def _shown(self, cell: Cell) -> str:
        if cell is None:
            return "-"
        if isinstance(cell, str):
            return cell
        return f"{cell:g}" if self.digits is None else f"{cell:.{self.digits}f}"


def render(table: FigureTable, format: str = "text") -> str:
    """A table in one of `FORMATS`."""
    check_format(format)
    if format == "text":
        return _text(table)
    if format == "markdown":
        return _markdown(table)
    if format == "latex":
        return _latex(table)
    rows = table.records or [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return json.dumps({"title": table.title, "rows": rows, "notes": list(table.notes)}, indent=2, ensure_ascii=False)


def check_format(format: str) -> None:
    """Refuse a format that does not exist."""
    if format not in FORMATS:
        raise DiptychError(f"format: {format!r} does not exist; {nearest(format, list(FORMATS))}")


def _text(table: FigureTable) -> str:
    lines = [list(table.columns), *table.cells()]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]
    shown = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([*([table.title] if table.title else []), shown[0], rule, *shown[1:], *table.notes])


def _markdown(table: FigureTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "|".join([" --- ", *[" ---: "] * (len(table.columns) - 1)]) + "|"
    head = [f"**{table.title}**", ""] if table.title else []
    notes = [part for note in table.notes for part in ("", note)]
    return "\n".join([*head, line(table.columns), rule, *(line(row) for row in table.cells()), *notes])


def _latex(table: FigureTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join("".join(_LATEX.get(sign, sign) for sign in cell) for cell in cells) + r" \\"

    notes = [f"% {note}" for note in table.notes]
    return "\n".join([
        *([f"% {table.title}"] if table.title else []),
        rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}", r"\toprule", line(table.columns), r"\midrule",
        *(line(row) for row in table.cells()), r"\bottomrule", r"\end{tabular}", *notes,
    ])  # fmt: skip


def figure_keys(evaluation: Evaluation) -> list[str]:
    """What a table shows, without the protocol: recalls and RSUM, or ECCV Caption's figures; then the model's own."""
    bare = [key.removeprefix(prefixed(evaluation.protocol, "")) for key in evaluation.figures]
    if evaluation.protocol == "eccv":
        return bare
    ranks = [f"{direction}/{name}" for direction in ("i2t", "t2i") for name in ("medr", "meanr")]
    own = [key for key in bare if key not in (*RECALLS, "rsum", *ranks)]
    return [*RECALLS, "rsum", *ranks, *own]


def evaluation_table(
    evaluations: dict[str, Evaluation], beside: PublishedTable | None = None, digits: int = 1
) -> FigureTable:
    """Figures of runs that were evaluated alike, one a row, with a paper's rows for the same protocol above them."""
    first = next(iter(evaluations.values()))
    keys = figure_keys(first)
    records: list[dict[str, object]] = []
    shown: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    if beside is not None:
        theirs = [row for row in beside.rows if row.protocol == first.protocol]
        if not theirs:
            protocols = sorted({row.protocol for row in beside.rows if row.protocol})
            what = f"has rows for {', '.join(protocols)}" if protocols else "has no rows for any protocol"
            raise DiptychError(f"{what}; expected {first.protocol}", where=beside.id)
        printed = {key for row in theirs for key, value in row.values.items() if value is not None}
        keys = [key for key in keys if key in printed]
        records += [{"method": row.label, "source": beside.id, **row.values} for row in theirs]
        shown += [(row.label, *(_printed(row, key, digits) for key in keys)) for row in theirs]
        notes.append(f"{beside.id}: {beside.printed_as} of {beside.paper_title} ({beside.venue}): {beside.caption}")
        notes += [f"{row.label}: {row.note}" for row in theirs if row.note]
    for name, evaluation in evaluations.items():
        records.append({"method": name, "source": "ours"} | {key: evaluation[key] for key in keys})
        shown.append((name, *(evaluation[key] for key in keys)))
        for key in keys:
            low, high = evaluation.ranges.get(prefixed(evaluation.protocol, key), (0.0, 0.0))
            if low != high:
                notes.append(f"{name}: {key} is between {low:.2f} and {high:.2f}, since scores are tied")
        notes += [f"{name}: {note}" for note in evaluation.notes]
    split = f", {first.split} split" if first.split else ""
    return FigureTable(
        columns=("method", *keys),
        rows=tuple(shown),
        title=f"{first.protocol}{split}: {first.images:,} pictures, {first.sentences:,} sentences",
        notes=tuple(notes),
        digits=digits,
        records=records,
    )


def _printed(row: PublishedRow, key: str, digits: int | None) -> Cell:
    """A paper's number; a doubtful one with a question mark."""
    value = row.values.get(key)
    if value is None or key not in row.doubtful:
        return value
    return f"{value:g}?" if digits is None else f"{value:.{digits}f}?"


def comparison_table(comparison: RunComparison) -> FigureTable:
    """A figure a row: each run with its interval, then each run's difference from the first, its interval and p."""
    base = comparison.runs[0]
    columns = ["figure", *comparison.runs]
    for name in comparison.runs[1:]:
        columns += [f"{name} − {base}", "p"]
    rows = []
    for key, runs in comparison.figures.items():
        row: list[Cell] = [key, *(f"{v.value:.1f} [{v.low:.1f}, {v.high:.1f}]" for v in runs.values())]
        for gap in comparison.differences[key].values():
            row += [f"{gap.value:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]", f"{gap.p:.4f}"]
        rows.append(tuple(row))
    several = any(count > 1 for count in comparison.seeds)
    drawn = "pictures and of seeds" if several else "pictures"
    notes = [
        f"{100 * comparison.confidence:g} % intervals from {comparison.draws:,} bootstrap draws of {drawn}; "
        f"p: paired permutation test, {comparison.permutations:,} sign flips"
    ]
    if several:
        notes += _about_seeds(comparison)
    return FigureTable(tuple(columns), tuple(rows), comparison.protocol, tuple(notes))


def _about_seeds(comparison: RunComparison) -> list[str]:
    """What figures over seeds are, and what the test does not say, each in a line."""
    key = next((key for key in comparison.spread if key.endswith("rsum")), next(iter(comparison.spread)))
    return [
        *(
            f"{name}: mean of {count} seeds, {key} ± {comparison.spread[key][name]:.1f} (standard deviation over seeds)"
            for name, count in zip(comparison.runs, comparison.seeds, strict=True)
            if count > 1
        ),
        "p is pooled over seeds: a picture's gap is the mean over its run's seeds, and is flipped whole; it is about",
        "these trainings on pictures like these. How another training would turn out is in the intervals alone, and",
        "with few seeds they are too narrow.",
    ]


def published_table(table: PublishedTable) -> FigureTable:
    """A paper's table as it was printed, one row for each protocol of a method."""
    several = len({row.protocol for row in table.rows}) > 1
    columns = ["method", *(["protocol"] if several else []), *(column.name for column in table.columns)]
    rows = tuple(
        (row.label, *([row.protocol] if several else []), *(_printed(row, c.name, table.digits) for c in table.columns))
        for row in table.rows
    )
    notes = [*table.notes, *(f"{row.label}: {row.note}" for row in table.rows if row.note)]
    return FigureTable(tuple(columns), rows, f"{table.id}: {table.caption}", tuple(notes), table.digits)
