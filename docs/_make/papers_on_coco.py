"""The tables and plots of "The papers' claims, on COCO" in docs/results.md, from what the benchmark of that name left.

    python docs/_make/papers_on_coco.py                                  # results/coco-grid into docs/results.md
    python docs/_make/papers_on_coco.py --results results/mine --out page.md --plots .

A page has room for a folder of results between two lines that name it, so one page can show several.

Every number is read from the records; nothing is trained or scored. Two models, or a model and its ablation, are
compared picture by picture (diptych.evaluation.compare); the papers' numbers come from diptych.evaluation.published.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from coco_claims import ABLATIONS, ALPHAS, CLAIMS, FOLDS, LONGER, NAMES, RATES, Claim

from diptych.common.errors import DiptychError
from diptych.common.files import read_text, write_text
from diptych.evaluation.compare import Difference, compare
from diptych.evaluation.figures import RECALLS
from diptych.evaluation.protocols import FOLD
from diptych.evaluation.published import PublishedRow, published
from diptych.evaluation.result import Evaluation
from diptych.training.trial_record import TrialRecord

ROOT = Path(__file__).parent.parent.parent
BEGIN, END = "<!-- {}: made by docs/_make/papers_on_coco.py -->", "<!-- {}: end -->"
SURE = 0.05
REACH = 30.0  # RSUM that a plot shows at least: what the seed makes is not to look like a curve
Alone = dict[str, Any]  # what one main row takes while nothing else is on the device


@dataclass(frozen=True)
class Runs:
    """A recipe or variant over its seeds."""

    records: tuple[TrialRecord, ...]
    evaluations: tuple[Evaluation, ...]

    def values(self, figure: str) -> list[float]:
        """A figure of every seed that has it."""
        return [record.figures[figure] for record in self.records if figure in record.figures]

    def told(self, figure: str, digits: int = 1) -> str:
        """Mean ± standard deviation over seeds."""
        values = self.values(figure)
        if not values:
            return ""
        mean = f"{np.mean(values):.{digits}f}"
        return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"

    def mean(self, field: str) -> float | None:
        """What the records have under a name, averaged."""
        values = [getattr(record, field) for record in self.records]
        return None if None in values else float(np.mean(values))


def read_runs(results: Path) -> dict[str, Runs]:
    """Every recipe and variant that has records, by `recipe/variant`."""
    found: dict[str, list[Path]] = {}
    for path in sorted(results.glob("*/*/seed-*/trial.json")):
        recipe, variant = path.parent.parent.parent.name, path.parent.parent.name
        found.setdefault(f"{recipe.removesuffix('-coco-grid')}/{variant}", []).append(path)
    if not found:
        raise DiptychError("holds no records; run benchmarks/papers_on_coco.py first", where=results)
    runs = {
        name: Runs(
            tuple(TrialRecord.load(path) for path in paths),
            tuple(Evaluation.load(path.parent / "evaluations" / f"{FOLDS}-test.json") for path in paths),
        )
        for name, paths in found.items()
    }
    asked = {record.queries for each in runs.values() for record in each.records}
    if len(asked) > 1:
        raise DiptychError("records of different test pictures or sentences cannot stand in one table", where=results)
    return runs


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def read_alone(results: Path) -> dict[str, Alone]:
    """What benchmarks/coco_alone.py measured of each main row, by `recipe/variant`; nothing where it has not."""
    path = results / "alone.json"
    rows = json.loads(read_text(path))["rows"] if path.exists() else {}
    return {name.replace("-coco-grid/", "/"): row for name, row in rows.items()}


def seconds(each: Runs, alone: Alone | None) -> tuple[float, float]:
    """Seconds of a training step and of a pair: alone on the device where that was measured, else of the runs."""
    if alone is not None:
        fastest = min(score["seconds"] for score in alone["scores"].values())
        return alone["step_seconds"], fastest / alone["pairs"]
    steps = float(np.mean([record.train_seconds / record.steps for record in each.records]))
    return steps, float(np.mean([record.score_seconds / record.pairs for record in each.records]))


def rounding_table(alone: dict[str, Alone]) -> str:
    """Recalls of the first fold and their seconds, in float32 and in half precision, where both were measured."""
    rows = []
    for key, name in NAMES.items():
        scores = alone[key]["scores"] if key in alone else {}
        for dtype, found in scores.items() if len(scores) > 1 else ():
            recalls = (f"{found[figure]:.1f}" for figure in RECALLS)
            rows.append([name, dtype, *recalls, f"{1000 * found['seconds']:.1f} ms"])
    return table(["model", "scores in", *RECALLS, "time"], rows) if rows else ""


def main_table(runs: dict[str, Runs], alone: dict[str, Alone]) -> str:
    """Recall, time, memory and size of the main rows."""
    rows = []
    for key, name in NAMES.items():
        if key not in runs:
            continue
        each = runs[key]
        step, pair = seconds(each, alone.get(key))
        many = each.records[0].images >= 2 * FOLD  # else all pictures are one fold
        rows.append([
            name,
            *(each.told(f"{FOLDS}/{figure}") for figure in ("i2t/r@1", "t2i/r@1", "rsum")),
            *(each.told(figure) if many else "" for figure in ("i2t/r@1", "t2i/r@1", "rsum")),
            f"{1e3 * step:.1f} ms",
            f"{1e6 * pair:.2f} µs" if pair >= 1e-6 else f"{1e9 * pair:.0f} ns",
            _gib(each.mean("train_bytes")),
            f"{each.mean('parameters') / 1e6:.1f}",
        ])  # fmt: skip
    head = ["model", "1K i2t R@1", "1K t2i R@1", "1K RSUM", "all i2t R@1", "all t2i R@1", "all RSUM",
            "a step", "a pair", "memory", "million weights"]  # fmt: skip
    told = [column for column in range(len(head)) if any(row[column] for row in rows)]
    return table([head[column] for column in told], [[row[column] for column in told] for row in rows])


def _gib(count: float | None) -> str:
    return "" if count is None else f"{count / 2**30:.1f} GiB"


def other_table(runs: dict[str, Runs]) -> str:
    """Figures beside recall; a column that no run has is left out."""
    columns = {
        "ECCV mAP@R i2t": "eccv/i2t/map@r", "t2i": "eccv/t2i/map@r",
        "CxC R@1 i2t": "cxc/i2t/r@1", "CxC t2i": "cxc/t2i/r@1",
        "near misses told": "foil/all", "object": "foil/object", "relation": "foil/relation",
    }  # fmt: skip
    shown = {head: key for head, key in columns.items() if any(runs[n].values(key) for n in NAMES if n in runs)}
    rows = [
        [name, *(runs[key].told(figure) for figure in shown.values())] for key, name in NAMES.items() if key in runs
    ]
    return table(["model", *shown], rows)


def notes_of(runs: dict[str, Runs]) -> str:
    """What the records say of themselves, a line each; of what only some say, which."""
    said: dict[str, set[str]] = {}
    for key, each in runs.items():
        for record in each.records:
            for note in record.notes:
                said.setdefault(note, set()).add(f"{key}, seed {record.seed}")
    count = sum(len(each.records) for each in runs.values())
    whole = {f"{key}, seed {record.seed}" for key in NAMES if key in runs for record in runs[key].records}
    lines = []
    for note, which in sorted(said.items()):
        # ECCV Caption and CxC are asked of main rows alone.
        everywhere = len(which) == count or which == whole
        lines.append(f"- {note}" + ("" if everywhere else f" ({', '.join(sorted(which))})"))
    return "\n".join(lines)


def own_figures(runs: dict[str, Runs]) -> str:
    """What only one model has, a line each."""
    lines = []
    for key, name in NAMES.items():
        own = sorted(filter(_is_own, runs[key].records[0].figures)) if key in runs else []
        if own:
            lines.append(f"- {name}: " + ", ".join(f"`{figure}` {runs[key].told(figure, 3)}" for figure in own))
    return "\n".join(lines)


def _is_own(key: str) -> bool:
    """Whether a figure is a matcher's own, such as gates and circular variance; of its parts, the whole alone."""
    return key.startswith(("gate/", "circular")) and not key.endswith(("/regions", "/words"))


def changed(key: str, change: str) -> str:
    """The variant that changes a main row in one thing."""
    kind, variant = key.split("/")
    return f"{kind}/{change}" if variant == "main" else f"{kind}/{variant}-{change}"


def tuned_table(runs: dict[str, Runs]) -> str:
    """The best of three rates by validation, with the first seed."""
    rows = []
    for key, name in NAMES.items():
        tried = {rate: changed(key, name) if name else key for name, rate in RATES.items()}
        there = {rate: runs[run].records[0] for rate, run in tried.items() if run in runs}
        if len(there) < 2:
            continue
        best = max(there, key=lambda rate: max(there[rate].validation))
        rows.append([
            name,
            *(f"{max(there[rate].validation):.1f}" if rate in there else "" for rate in tried),
            best,
            f"{there[best].figures[f'{FOLDS}/rsum']:.1f}",
        ])  # fmt: skip
    head = ["model", *(f"validation at {rate}" for rate in RATES.values()), "best rate", "1K RSUM there"]
    return table(head, rows) if rows else ""


def difference(runs: dict[str, Runs], one: str, other: str) -> Difference:
    """How far the RSUM of `one` is from that of `other`."""
    found = compare({other: runs[other].evaluations, one: runs[one].evaluations})
    return found.differences[f"{FOLDS}/rsum"][one]


def verdict(gap: Difference, expected: int) -> str:
    """What the paired test says of a claim; expected: the sign that it claims."""
    if gap.p >= SURE or gap.low <= 0 <= gap.high:  # the test is over pictures, the interval over seeds as well
        return "not told apart"
    return "holds" if gap.value * expected > 0 else "the other way round"


def _gap(gap: Difference) -> list[str]:
    return [f"{gap.value:+.1f} ({gap.low:+.1f} … {gap.high:+.1f})", f"{gap.p:.4f}" if gap.p >= 1e-4 else "≤ 0.0001"]


def claims_table(runs: dict[str, Runs]) -> str:
    """Each pair of models that a paper orders, and what comes out here."""
    rows = []
    for claim in CLAIMS:
        if claim.better not in runs or claim.worse not in runs:
            continue
        better, worse = (published(claim.table).row(row, claim.protocol) for row in claim.rows)
        gap = difference(runs, claim.better, claim.worse)
        rows.append([
            f"{NAMES[claim.better]} above {NAMES[claim.worse]}",
            f"{_printed(better, claim)} and {_printed(worse, claim)} (`{claim.table}`)",
            *_gap(gap),
            verdict(gap, 1),
        ])  # fmt: skip
    head = ["claim", "the paper, R@1 i2t / t2i (of DivE mAP@R)", "RSUM here, difference", "p", "here"]
    return table(head, rows)


def longer_table(runs: dict[str, Runs]) -> str:
    """The same claims where both models were trained three times as long, beside what is above."""
    rows = []
    for claim in CLAIMS:
        one, other = (changed(key, LONGER) for key in (claim.better, claim.worse))
        if not {one, other, claim.better, claim.worse} <= runs.keys():
            continue
        gap, before = difference(runs, one, other), difference(runs, claim.better, claim.worse)
        rows.append([
            f"{NAMES[claim.better]} above {NAMES[claim.worse]}",
            *(runs[key].told(f"{FOLDS}/rsum") for key in (one, other)),
            *_gap(gap),
            verdict(gap, 1),
            f"{before.value:+.1f}",
        ])  # fmt: skip
    head = ["claim", "1K RSUM of the first", "of the second", "difference", "p", "here", "before"]
    return table(head, rows) if rows else ""


def _printed(row: PublishedRow, claim: Claim) -> str:
    return " / ".join(f"{row.values[figure]:g}" for figure in claim.figures)


def ablation_tables(runs: dict[str, Runs]) -> str:
    """Each model's ablations beside it, and beside what its paper found."""
    parts = []
    for kind, title in (("camp", "CAMP"), ("mmca", "MMCA"), ("vse-infinity", "VSE∞"), ("dive", "DivE")):
        main = f"{kind}/main"
        there = [key for key in ABLATIONS if key.startswith(f"{kind}/") and key in runs]
        if main not in runs or not there:
            continue
        rows = [["as it is", runs[main].told(f"{FOLDS}/rsum"), "", "", "", "", *_variance(runs[main], kind)]]
        for key in there:
            gap = difference(runs, key, main)
            change, recalls = paper_change(key)
            told = "" if change is None else f"{change:+.1f} of {recalls} recalls"
            here = verdict(gap, -1)
            if change is None:  # of what no table of the papers has, there is nothing that could hold
                here = {"holds": "lower", "the other way round": "higher"}.get(here, here)
            rows.append([
                key.split("/")[1], runs[key].told(f"{FOLDS}/rsum"), *_gap(gap), told, here, *_variance(runs[key], kind),
            ])  # fmt: skip
        head = ["variant", "1K RSUM", "difference", "p", "in the paper", "here"]
        parts.append(f"#### {title}\n\n" + table(head + ["circular variance"] * (kind == "dive"), rows))
    return "\n\n".join(parts)


def _variance(runs: Runs, kind: str) -> list[str]:
    if kind != "dive":
        return []
    keys = [key for key in runs.records[0].figures if key.startswith("circular")]
    return [" / ".join(runs.told(key, 3) for key in sorted(keys))]


def paper_change(key: str) -> tuple[float | None, int]:
    """How much the paper's sum of recalls changes with an ablation, and of how many recalls."""
    source = ABLATIONS[key]
    if source is None:
        return None, 0
    id, main, other = source
    protocol = "flickr30k" if id in ("camp/table-3", "mmca/table-6") else FOLDS
    rows = [published(id).row(name, protocol).values for name in (main, other)]
    shared = [name for name in RECALLS if all(row.get(name) is not None for row in rows)]
    return sum((rows[1][name] or 0) - (rows[0][name] or 0) for name in shared), len(shared)


def rerank_table(results: Path) -> str:
    """RSUM by depth and fusion, and what a query's second stage takes."""
    trees = [json.loads(read_text(path)) for path in sorted((results / "rerank").glob("*.json"))]
    rows = []
    for tree in trees:
        for depth in dict.fromkeys(point["depth"] for point in tree["points"]):
            by = {point["fusion"]: point["rsum"] for point in tree["points"] if point["depth"] == depth}
            seconds = tree["query_seconds"][f"{depth:g}"]
            name = NAMES[tree["slow"]]
            rows.append([name, f"{100 * depth:g} %", *(f"{by[f]:.1f}" for f in by), f"{1000 * seconds:.1f} ms"])
    head = ["VSE∞, then", "depth", "`replace`", "`sum`", "`rrf`", "second stage of one sentence, all pictures"]
    return table(head, rows) if rows else ""


def plots(runs: dict[str, Runs], results: Path, folder: Path) -> list[str]:
    """Write the plots; returns their lines in Markdown."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "diptych"})
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    told = []
    trees = [json.loads(read_text(path)) for path in sorted((results / "rerank").glob("*.json"))]
    if trees:
        figure, axes = plt.subplots(1, len(trees), figsize=(3 * len(trees) + 1, 2.8), sharey=True, squeeze=False)
        for axis, tree in zip(axes[0], trees, strict=True):
            for fusion, style in (("sum", "o-"), ("replace", "s--"), ("rrf", "^:")):
                points = [point for point in tree["points"] if point["fusion"] == fusion]
                axis.plot([100 * p["depth"] for p in points], [p["rsum"] for p in points], style, ms=4, label=fusion)
            first = runs.get("vse-infinity/main")
            if first is not None:
                axis.axhline(first.records[0].figures[f"{FOLDS}/rsum"], color="0.5", lw=1, label="VSE∞ alone")
            axis.set(title=NAMES[tree["slow"]], xlabel="% rescored", xscale="log")
            shown = [1, 2, 5, 10, 20, 50, 100]
            axis.set_xticks(shown, [str(each) for each in shown])
            axis.set_xticks([], minor=True)
        axes[0][0].set_ylabel("COCO 1K RSUM")
        axes[0][-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        told.append(_save(figure, folder, f"{results.name}-depth", "RSUM by how much the second stage rescores"))
    alphas = {alpha: runs[key] for key, alpha in ALPHAS.items() if key in runs}
    if len(alphas) > 2:
        figure, axis = plt.subplots(figsize=(4, 3))
        axis.plot(list(alphas), [float(np.mean(each.values(f"{FOLDS}/rsum"))) for each in alphas.values()])
        for alpha, each in alphas.items():
            axis.plot([alpha] * len(each.records), each.values(f"{FOLDS}/rsum"), "o", color="C0", ms=4)
        axis.set(xlabel="weight of MMCA's cross part, α", ylabel="COCO 1K RSUM")
        low, high = axis.get_ylim()
        middle, reach = (low + high) / 2, max(REACH, high - low) / 2
        axis.set_ylim(middle - reach, middle + reach)
        told.append(_save(figure, folder, f"{results.name}-alpha", "RSUM by the weight of MMCA's cross part"))
    return told


def _save(figure: Any, folder: Path, name: str, words: str) -> str:
    figure.tight_layout()
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return f"![{words}]({name}.svg)"


def page(runs: dict[str, Runs], results: Path, folder: Path) -> str:
    """All of it in Markdown; the plots go to `folder`."""
    first = next(runs[key] for key in (*NAMES, *runs) if key in runs).records[0]
    counts = {NAMES[key]: len(runs[key].records) for key in NAMES if key in runs}
    most = max(counts.values())
    few = ", ".join(f"{count} of {name}" for name, count in counts.items() if count < most)
    alone = read_alone(results)
    shared = max(record.at_once for each in runs.values() for record in each.records)
    measured = (
        "with nothing else on the device"
        if set(counts) <= {NAMES[key] for key in alone if key in NAMES}
        else (f"of runs of which {shared} shared the device" if shared > 1 else "of the runs")
    )
    told = (
        f"{first.images:,} test pictures, {first.sentences:,} sentences; {first.steps:,} steps each, on one "
        f"{first.device}. Mean ± standard deviation over {most} seeds{f' ({few})' if few else ''}. `1K`: the "
        "mean over folds of 1,000 pictures; `all`: every picture with every sentence. A step and a pair are "
        f"timed {measured}; a pair without encoding."
    )
    sections = {
        "": "\n\n".join(
            [
                told,
                main_table(runs, alone),
                notes_of(runs),
                other_table(runs),
                own_figures(runs),
            ]
        ).strip(),
        "### Rounding\n\nThe first thousand pictures with their sentences, by trained weights:": rounding_table(alone),
        "### Tuned\n\nThree rates, one seed, the best by the validation split:": tuned_table(runs),
        "### Does the papers' order hold?\n\nDifference of RSUM with its 95 % interval over pictures and seeds, and "
        "the p of a paired permutation test over pictures, each test by itself. A claim holds where p is below 0.05 "
        "and the interval leaves out 0.": claims_table(runs),
        "### Does it with three times the steps?\n\nOver 18 epochs, one seed each:": longer_table(runs),
        "### Ablations\n\nOne seed each, beside all seeds of the model as it is. The papers measured them on other "
        "features, CAMP and MMCA on Flickr30K.": ablation_tables(runs),
        "### How deep to re-rank\n\nVSE∞ finds, another rescores its best; RSUM over the folds, first seed.": (
            rerank_table(results)
        ),
    }
    drawn = plots(runs, results, folder)
    return "\n\n".join([f"{head}\n\n{body}".strip() for head, body in sections.items() if body] + drawn)


def main() -> None:
    """Put the tables where the docs have room for them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "coco-grid")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results.md")
    parser.add_argument("--plots", type=Path, default=ROOT / "docs", help="where the plots go")
    args = parser.parse_args()
    made = page(read_runs(args.results), args.results, args.plots)
    begin, end = (line.format(args.results.name) for line in (BEGIN, END))
    before = read_text(args.out) if args.out.exists() else f"{begin}\n{end}\n"
    if begin not in before or end not in before:
        raise DiptychError(f"expected the lines {begin!r} and {end!r}", where=args.out)
    head, _, rest = before.partition(begin)
    write_text(args.out, f"{head}{begin}\n\n{made}\n\n{end}{rest.partition(end)[2]}")
    print(f"{args.out}: written")


if __name__ == "__main__":
    main()
