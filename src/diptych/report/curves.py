"""How the training went: loss, learning rate and validation figures as curves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from diptych.evaluation.figures import RECALLS
from diptych.report.axes import Axis, axis
from diptych.report.chart import Numbers
from diptych.report.charts import Line, line_chart
from diptych.report.parts import Section, section
from diptych.report.run_folder import RunFolder, RunLog

if TYPE_CHECKING:
    from markupsafe import Markup

BINS = 200
OWN = {
    "gate": ("Mean gates of right and wrong pairs", "mean gate, 0 to 1"),
    "circular_variance": ("How far the elements of a set lie apart", "circular variance, 0 to 1"),
}
OWN_NAMES = {
    "gate/positive": "right pairs",
    "gate/negative": "wrong pairs",
    "circular_variance/images": "pictures",
    "circular_variance/texts": "sentences",
}


def curves_section(run: RunFolder) -> Section:
    """Loss, learning rate, and validation figures over the run."""
    log, notes = run.log, []
    if not log.steps and not log.validations:
        notes.append("The run has no metrics.jsonl with a line in it: there are no curves to draw.")
    if log.unreadable:
        notes.append(f"{log.unreadable} lines of metrics.jsonl could not be read and are left out.")
    if log.steps and not log.validations:
        notes.append("The run was not validated yet: there is no curve of recalls.")
    charts = [*_step_charts(log), *_validation_charts(log)]
    return section("training", "Training", {"notes": notes, "charts": charts})


def binned(steps: Sequence[int], values: Sequence[float], bins: int = BINS) -> list[tuple[int, float, float, float]]:
    """Stretches of equal length as (last step, mean, lowest, highest); every step where there are few."""
    stretches = []
    for part in np.array_split(np.arange(len(steps)), min(bins, len(steps))):
        chosen = [values[i] for i in part]
        stretches.append((steps[part[-1]], float(np.mean(chosen)), min(chosen), max(chosen)))
    return stretches


def _step_charts(log: RunLog) -> "list[Markup]":
    if not log.steps:
        return []
    rows = binned(log.steps, log.losses)
    x = [row[0] for row in rows]
    means = [row[1] for row in rows]
    wide = min(log.losses) > 0 and max(log.losses) / min(log.losses) >= 20
    y = axis("loss (log scale)" if wide else "loss", log.losses, log=wide, low=None if wide else 0.0)
    each = len(log.steps) / len(rows)
    note = (
        f"Each point is the mean of about {each:.0f} steps; the band is from the lowest to the highest."
        if each > 1.5
        else ""
    )
    band = Line(
        "loss", x, means, 0, low=[r[2] for r in rows] if note else (), high=[r[3] for r in rows] if note else ()
    )
    numbers = Numbers(["step", "mean loss", "lowest", "highest"], rows)
    loss = line_chart("loss", "Training loss", [band], "step", y, numbers=numbers, note=note, x_low=0)
    changes = _changes(log.steps, log.rates)
    rate_axis = axis("learning rate", [r for _, r in changes], low=0.0)
    line = Line("learning rate", [s for s, _ in changes], [r for _, r in changes], 1)
    return [loss, line_chart("rate", "Learning rate", [line], "step", rate_axis, x_low=0)]


def _changes(steps: Sequence[int], values: Sequence[float]) -> list[tuple[int, float]]:
    """The corners of a curve that is mostly flat; a curve that is not is thinned."""
    kept = [
        i
        for i in range(len(steps))
        if i in (0, len(steps) - 1) or values[i] != values[i - 1] or values[i] != values[i + 1]
    ]
    if len(kept) > 2 * BINS:
        kept = [kept[int(i)] for i in np.linspace(0, len(kept) - 1, 2 * BINS)]
    return [(steps[i], values[i]) for i in kept]


def _validation_charts(log: RunLog) -> "list[Markup]":
    told = [(epoch, figures) for epoch, figures in log.validations if "rsum" in figures]
    if not told:
        return []
    epochs = [epoch for epoch, _ in told]
    best = log.best
    mark = None if best is None else (float(best[0]), f"best: epoch {best[0]}")
    sums = [figures["rsum"] for _, figures in told]
    rsum = line_chart(
        "rsum", "Validation RSUM", [Line("RSUM", epochs, sums, 0, points=True)], "epoch",
        axis("RSUM, at most 600", sums), mark=mark,
    )  # fmt: skip
    lines = [
        Line(
            f"{'picture → sentence' if key[0] == 'i' else 'sentence → picture'} {key[4:].upper()}",
            epochs,
            [figures[key] for _, figures in told],
            0 if key[0] == "i" else 1,
            i % 3,
            points=True,
        )
        for i, key in enumerate(RECALLS)
        if all(key in figures for _, figures in told)
    ]
    charts = [rsum]
    if lines:
        y = axis("recall, % of queries", [v for line in lines for v in line.y], high=100.0)
        charts.append(line_chart("recalls", "Validation recalls", lines, "epoch", y, mark=mark))
    return charts + _own_charts(told)


def _own_charts(told: Sequence[tuple[int, dict[str, float]]]) -> "list[Markup]":
    """The model's own figures over the epochs: CAMP's gates, DivE's circular variance."""
    charts = []
    for prefix, (title, label) in OWN.items():
        keys = [k for k in told[0][1] if k.startswith(f"{prefix}/") and all(k in figures for _, figures in told)]
        keys = [k for k in keys if k.count("/") == 1]
        lines = [
            Line(
                OWN_NAMES.get(k, k.split("/", 1)[1]),
                [e for e, _ in told],
                [f[k] for _, f in told],
                i,
                i % 3,
                points=True,
            )
            for i, k in enumerate(keys)
        ]
        if lines:
            y = Axis(label, 0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
            charts.append(line_chart(prefix.replace("_", "-"), title, lines, "epoch", y))
    return charts
