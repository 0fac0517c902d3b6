"""What a model shows of itself: near misses, gates, pooling coefficients, and a map of its vectors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from diptych.report.axes import Axis, axis, number
from diptych.report.chart import COLOURS, Numbers
from diptych.report.charts import Bars, Cloud, Line, bar_chart, line_chart, map_chart, scatter_chart
from diptych.report.coefficients import Coefficients
from diptych.report.embedding import Embedding
from diptych.report.gates import BINS, Gates
from diptych.report.near_misses import Confusion
from diptych.report.parts import Section, section
from diptych.report.subject import Subject

if TYPE_CHECKING:
    from markupsafe import Markup

PERCENT = Axis("right answers, %", 0.0, 100.0, (0.0, 25.0, 50.0, 75.0, 100.0))


def near_miss_section(confusions: Sequence[Confusion], pairs: int) -> Section:
    """How often the right one of two wins, by attribute, and what is mistaken for what."""
    asked = sum(int(c.asked.sum()) for c in confusions)
    wrong = sum(int(c.wrong.sum()) for c in confusions)
    by_sentence = [100 * c.by_sentence[0] / c.by_sentence[1] for c in confusions]
    by_picture = [100 * c.by_picture[0] / c.by_picture[1] for c in confusions]
    rows: list[list[str | float]] = [
        [c.attribute, f"{s:.1f}", f"{p:.1f}", f"{c.right:.1f}", int(c.asked.sum())]
        for c, s, p in zip(confusions, by_sentence, by_picture, strict=True)
    ]
    chart = bar_chart(
        "near-misses-chart",
        "Right answers by what differs",
        [c.attribute for c in confusions],
        [Bars("of two sentences", by_sentence, 0), Bars("of two pictures", by_picture, 1, hollow=True)],
        "attribute that differs",
        PERCENT,
        level=(50.0, "guessing"),
        numbers=Numbers(["attribute", "of two sentences, %", "of two pictures, %", "both, %", "questions"], rows),
    )
    values = {
        "pairs": pairs,
        "asked": asked,
        "right": 100 * (1 - wrong / asked),
        "chart": chart,
        "confusions": [_matrix(c) for c in confusions],
    }
    return section("near-misses", "Confusion of near misses", values)


def _matrix(confusion: Confusion) -> dict[str, object]:
    """A confusion for the template: rows of (asked, wrong), by their true value."""
    rows = [
        (value, list(zip(asked.tolist(), wrong.tolist(), strict=True)))
        for value, asked, wrong in zip(confusion.values, confusion.asked, confusion.wrong, strict=True)
    ]
    return {
        "title": f"{confusion.attribute}: {confusion.right:.0f} % right",
        "values": confusion.values,
        "long": any(len(value) > 2 for value in confusion.values),
        "rows": rows,
    }


def gates_section(gates: Gates) -> Section:
    """Histograms of the gates of right and wrong pairs."""
    charts = []
    edges = np.linspace(0, 1, BINS + 1).tolist()
    for side, values in (("regions", gates.regions), ("words", gates.words)):
        counts = gates.counts(side)
        shares = {k: 100 * c / c.sum() for k, c in counts.items()}
        names = [f"{low:.2f} to {low + 1 / BINS:.2f}" for low in edges[:-1]]
        top = max(float(s.max()) for s in shares.values())
        groups = [
            Bars(
                f"{'right' if k == 'positive' else 'wrong'} pairs, mean {number(float(values[k].mean()), 3)}",
                shares[k].tolist(),
                0 if k == "positive" else 1,
                hollow=k == "negative",
                told=[f"{n}: {c:,} gates, {s:.1f} %" for n, c, s in zip(names, counts[k], shares[k], strict=True)],
            )
            for k in counts
        ]
        numbers = Numbers(
            ["gate", *(f"{'right' if k == 'positive' else 'wrong'} pairs, gates" for k in counts)],
            [[name, *(int(c[i]) for c in counts.values())] for i, name in enumerate(names)],
        )
        charts.append(
            bar_chart(
                f"gates-{side}",
                f"Gates of {side}",
                names,
                groups,
                "gate, 0 closed to 1 open",
                axis(f"share of {side}, %", [0.0, top], low=0.0),
                edges=edges,
                numbers=numbers,
            )
        )
    told = {"pairs": gates.pairs, "charts": charts}
    return section("gates", "Gates of right and wrong pairs", told)


def coefficients_section(sides: Sequence[Coefficients], per_dimension: bool, features: bool) -> Section:
    """GPO's coefficients as lines for typical sizes, and as a map for all."""
    charts = []
    for side in sides:
        charts += [_coefficient_lines(side), _coefficient_map(side)]
    values = {"per_dimension": per_dimension, "features": features, "charts": charts}
    return section("pooling", "GPO coefficients", values)


def _coefficient_lines(side: Coefficients) -> "Markup":
    item = "regions" if side.side == "pictures" else "tokens"
    lines = []
    for i, size in enumerate(side.typical()):
        ranks = list(range(1, size + 1))
        lines.append(Line(f"{size} {item}", ranks, side.theta[size].tolist(), i, points=size <= 40))
        if size > 1:
            lines.append(Line(f"mean of {size}", [1, size], [1 / size] * 2, i, 2, named=False))
    named = [line for line in lines if line.named]
    y = axis("weight θ", [v for line in lines for v in line.y], low=min(0.0, *(min(line.y) for line in lines)))
    numbers = Numbers(
        ["rank", *(line.name for line in named)],
        [
            [rank, *(f"{line.y[rank - 1]:.4f}" if rank <= len(line.y) else "–" for line in named)]
            for rank in range(1, max(len(line.y) for line in named) + 1)
        ],
    )
    return line_chart(
        f"theta-{side.side}", f"Weights of the ranks, {side.side}", lines, "rank, 1 the largest", y,
        numbers=numbers, x_low=1 if len(named[-1].y) > 1 else None,
    )  # fmt: skip


def _coefficient_map(side: Coefficients) -> "Markup":
    item = "regions" if side.side == "pictures" else "tokens"
    sizes = sorted(side.theta)
    values = np.full((len(sizes), sizes[-1]), np.nan)
    for row, size in enumerate(sizes):
        values[row, :size] = side.theta[size] / side.theta[size].max()
    every = max(1, -(-len(sizes) // 8))
    step = max(1, -(-sizes[-1] // 8))
    rows: list[list[str | float]] = [
        [
            size,
            side.sizes.get(size, 0),
            f"{side.theta[size][0]:.4f}",
            f"{side.theta[size].max():.4f}",
            int(side.theta[size].argmax()) + 1,
            f"{side.theta[size][-1]:.4f}",
        ]
        for size in sizes
    ]
    columns = [f"{item} in the set", "sets looked at", "θ of rank 1", "largest θ", "at rank", "θ of the last rank"]
    return map_chart(
        f"theta-map-{side.side}",
        f"Weights by rank and size, {side.side}",
        values,
        [(float(i), str(i + 1)) for i in range(0, sizes[-1], step)],
        [(float(i), str(sizes[i])) for i in range(0, len(sizes), every)],
        "rank, 1 the largest",
        f"{item} in the set",
        f"Map of the weights: a row a set size from {sizes[0]} to {sizes[-1]}, a column a rank. For each size the rank "
        "with the largest weight is: " + ", ".join(f"{r[0]}: {r[4]}" for r in rows) + ".",
        Numbers(columns, rows),
        "Each row is scaled by its largest weight.",
    )


def embedding_section(embedding: Embedding, subject: Subject, seed: int) -> Section:
    """The map of pictures and sentences, coloured by slot where items are sets."""
    pictures = int((~embedding.texts).sum()) // embedding.count
    clouds = []
    for texts in (False, True):
        for slot in range(embedding.count):
            chosen = (embedding.slots == slot) & (embedding.texts == texts)
            side = "sentences" if texts else "pictures"
            several = embedding.count > 1
            clouds.append(
                Cloud(
                    f"{side}, slot {slot + 1}" if several else side,
                    embedding.places[chosen],
                    slot if several else int(texts),
                    "triangle" if texts else "circle",
                    hollow=texts,
                    told=[_told(subject, int(i), texts, slot, several) for i in embedding.items[chosen]],
                )
            )
    title = "Elements of embedding sets by slot and side" if embedding.count > 1 else "Pictures and sentences"
    note = "Circles are pictures, triangles are sentences" + ("; a colour is a slot." if embedding.count > 1 else ".")
    if embedding.count > COLOURS:
        note += f" There are more slots than colours: slot {COLOURS + 1} has slot 1's colour again, and so on."
    chart = scatter_chart("map", title, clouds, "t-SNE, no unit", "t-SNE, no unit", note)
    values = {
        "pictures": pictures,
        "seed": seed if pictures < subject.whole else None,
        "what": embedding.what,
        "chart": chart,
    }
    return section("embedding", "A map of the embeddings", values)


def _told(subject: Subject, position: int, texts: bool, slot: int, several: bool) -> str:
    text = subject.captions[position] if texts else subject.collection.items[position].id
    return (f"slot {slot + 1}: " if several else "") + (f"“{text}”" if texts else text)
