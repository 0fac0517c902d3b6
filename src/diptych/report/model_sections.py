"""What a model shows of itself: near misses, gates, pooling coefficients, and a map of its vectors."""

from collections.abc import Sequence
from html import escape

import numpy as np

from diptych.report.axes import Axis, axis, number
from diptych.report.chart import COLOURS, Numbers
from diptych.report.charts import Bars, Cloud, Line, bar_chart, line_chart, map_chart, scatter_chart
from diptych.report.coefficients import Coefficients
from diptych.report.embedding import Embedding
from diptych.report.gates import BINS, Gates
from diptych.report.near_misses import Confusion
from diptych.report.parts import Section, paragraph
from diptych.report.subject import Subject

PERCENT = Axis("right answers, %", 0.0, 100.0, (0.0, 25.0, 50.0, 75.0, 100.0))


def near_miss_section(confusions: Sequence[Confusion], pairs: int) -> Section:
    """How often the right one of two wins, by attribute, and what is mistaken for what."""
    asked = sum(int(c.asked.sum()) for c in confusions)
    wrong = sum(int(c.wrong.sum()) for c in confusions)
    body = paragraph(
        f"{pairs:,} pairs of scenes that differ in one attribute, drawn with a seed that no training scene has. "
        "Two questions a pair: which of two sentences fits a scene, and which of two scenes fits a sentence; a tie "
        f"counts as wrong. Of {asked:,} questions {100 * (1 - wrong / asked):.1f} % were answered rightly; guessing "
        "gives 50 %."
    )
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
    body += f'<div class="charts">{chart}</div><h3>What was taken for what</h3>' + paragraph(
        "Rows: what is true. Columns: what it was set against. In a cell: wrong answers / questions; the stronger "
        "the colour, the more often the wrong one won."
    )
    body += '<div class="charts matrices">' + "".join(_matrix(c) for c in confusions) + "</div>"
    return Section("near-misses", "Confusion of near misses", body)


def _matrix(confusion: Confusion) -> str:
    css = "confusion" if all(len(value) < 3 for value in confusion.values) else "confusion long"
    head = "".join(f'<th scope="col">{escape(value)}</th>' for value in confusion.values)
    rows = ""
    for i, value in enumerate(confusion.values):
        cells = ""
        for asked, wrong in zip(confusion.asked[i].tolist(), confusion.wrong[i].tolist(), strict=True):
            if asked:
                cells += f'<td style="--w:{0.75 * wrong / asked:.2f}">{wrong}/{asked}</td>'
            else:
                cells += '<td class="none">·</td>'
        rows += f'<tr><th scope="row">{escape(value)}</th>{cells}</tr>'
    title = f"{confusion.attribute}: {confusion.right:.0f} % right"
    return (
        f'<figure class="matrix"><figcaption>{escape(title)}</figcaption>'
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(title)}"><table class="{css}">'
        f'<thead><tr><th scope="col"><span class="hidden">true value</span></th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></figure>"
    )


def gates_section(gates: Gates) -> Section:
    """Histograms of the gates of right and wrong pairs."""
    body = paragraph(
        "How much of its message each region and each word lets in, from 0 to 1; of a gate vector the mean over its "
        f"dimensions. {gates.pairs:,} drawn sentences, each with its own picture (right) and with another (wrong). "
        "CAMP's paper reports means of 0.971 on right pairs and 2.7e-9 on wrong ones, on Flickr30K."
    )
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
    return Section("gates", "Gates of right and wrong pairs", body + f'<div class="charts">{"".join(charts)}</div>')


def coefficients_section(sides: Sequence[Coefficients], per_dimension: bool, features: bool) -> Section:
    """GPO's coefficients as lines for typical sizes, and as a map for all."""
    mean = "; the mean over dimensions" if per_dimension else ""
    mean += "; the mean over the sets of each size, since theirs depend on what is in them" if features else ""
    body = paragraph(
        "Each dimension of a set is sorted, and its k-th largest value has the weight θ of rank k. All weight on the "
        f"first rank would be max pooling, equal weights are mean pooling (dotted){mean}."
    )
    charts = []
    for side in sides:
        charts += [_coefficient_lines(side), _coefficient_map(side)]
    return Section("pooling", "GPO coefficients", body + f'<div class="charts pairs">{"".join(charts)}</div>')


def _coefficient_lines(side: Coefficients) -> str:
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


def _coefficient_map(side: Coefficients) -> str:
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
    drawn = "" if pictures == subject.whole else f", drawn with seed {seed},"
    body = paragraph(
        f"t-SNE of {pictures:,} pictures{drawn} and one sentence of each. A point is {embedding.what}. Near points are "
        "alike; distances between far ones, and the axes, mean nothing."
    )
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
    return Section("embedding", "A map of the embeddings", body + chart)


def _told(subject: Subject, position: int, texts: bool, slot: int, several: bool) -> str:
    text = subject.captions[position] if texts else subject.collection.items[position].id
    return (f"slot {slot + 1}: " if several else "") + (f"“{text}”" if texts else text)
