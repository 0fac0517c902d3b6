"""`diptych pooling`: the synthetic pooling experiment of VSE∞'s supplement, our Table 6 beside the paper's."""

import json
import statistics
from dataclasses import asdict
from typing import Annotated

import typer

from diptych.common.progress import progress_bar
from diptych.training.pooling_experiment import (
    DESIGNS,
    PAPER,
    PATTERNS,
    Budget,
    CoefficientGenerator,
    Errors,
    errors,
    train_generators,
)

Table = dict[str, dict[str, list[Errors]]]


def command(
    seeds: Annotated[
        int, typer.Option(min=1, help="How many times each design learns each pattern; the mean is printed.")
    ] = 2,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each.")] = Budget.steps,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Teach four coefficient generators five pooling patterns, and print their errors beside the paper's Table 6."""
    budget = Budget(steps=steps)
    table = run(budget, seeds)
    print(json.dumps(as_tree(table, budget, seeds)) if as_json else as_text(table))


def run(budget: Budget, seeds: int) -> Table:
    """Train every design on every pattern: the errors of each seed by design and pattern."""
    table: Table = {design: {pattern: [] for pattern in PATTERNS} for design in DESIGNS}
    with progress_bar("steps") as bar:
        task = bar.add_task("pooling", total=budget.steps * seeds * len(DESIGNS), note="")
        for design in DESIGNS:
            bar.update(task, note=design)
            for seed in range(seeds):
                generators: dict[str, CoefficientGenerator] = {}
                for trained in train_generators(design, budget, seed):
                    generators = trained
                    bar.advance(task)
                for pattern, generator in generators.items():
                    table[design][pattern].append(errors(generator, pattern))
    return table


def mean_errors(runs: list[Errors]) -> Errors:
    """The mean over seeds."""
    return Errors(
        statistics.fmean(run.seen for run in runs),
        statistics.fmean(run.smaller for run in runs),
        statistics.fmean(run.larger for run in runs),
    )


def as_tree(table: Table, budget: Budget, seeds: int) -> dict[str, object]:
    """For `--json`: of every design and pattern our mean, each seed's figures, and the paper's."""
    rows = [
        {
            "design": design,
            "pattern": pattern,
            "ours": asdict(mean_errors(runs)),
            "runs": [asdict(run) for run in runs],
            "paper": asdict(PAPER[design][pattern]),
        }
        for design, patterns in table.items()
        for pattern, runs in patterns.items()
    ]
    return {"figure": "rmse", "seeds": seeds, "budget": asdict(budget), "rows": rows}


def as_text(table: Table) -> str:
    """The table for people: two lines a design, the paper's and ours; unseen sizes as smaller/larger."""
    lines = [
        "RMSE of the pooling coefficients; sizes 20-100 seen, 10-19 and 101-120 unseen",
        f"{'':<21}{'SEEN':<35}UNSEEN (smaller/larger)",
        f"{'':<21}" + "".join(f"{p:<7}" for p in PATTERNS) + "".join(f"{p:<11}" for p in PATTERNS).rstrip(),
    ]
    farthest = 0.0
    for design, patterns in table.items():
        ours = {pattern: mean_errors(runs) for pattern, runs in patterns.items()}
        for source, row in (("paper", PAPER[design]), ("ours", ours)):
            seen = "".join(f"{_short(row[p].seen):<7}" for p in PATTERNS)
            unseen = "".join(f"{_short(row[p].smaller) + '/' + _short(row[p].larger):<11}" for p in PATTERNS)
            lines.append(f"{design if source == 'paper' else '':<15}{source:<6}{seen}{unseen}".rstrip())
        if design == "Cos/Sin+BiGRU":
            farthest = max(
                abs(a - b)
                for p in PATTERNS
                for a, b in zip(asdict(ours[p]).values(), asdict(PAPER[design][p]).values(), strict=True)
            )
    lines.append(f"Cos/Sin+BiGRU, farthest from the paper in any column: {_short(farthest)}")
    return "\n".join(lines)


def _short(figure: float) -> str:
    """Three decimals without the zero in front, as the paper prints them."""
    return f"{figure:.3f}".removeprefix("0")
