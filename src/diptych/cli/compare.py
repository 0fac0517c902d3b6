"""`diptych compare`: runs side by side, with intervals and a paired test."""

import json
from typing import Annotated

import typer

from diptych.cli.options import FormatOption
from diptych.common.errors import DiptychError


def command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN ...",
            help="Evaluated runs, or files of RUN/evaluations; the first is the base. Several seeds of one run, as "
            "A,B,C or a folder of seed-0, seed-1 …, are pooled.",
        ),
    ],
    protocol: Annotated[str | None, typer.Option(help="Which evaluation, where the runs have several.")] = None,
    split: Annotated[str | None, typer.Option(help="Of which split.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Bootstrap draws for the intervals.")] = 2000,
    permutations: Annotated[int, typer.Option(min=1, help="Sign flips for the paired test.")] = 10_000,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the draws and flips.")] = 0,
    format: FormatOption = "text",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Runs side by side, with intervals and a paired test, pooled over seeds where there are several."""
    from diptych.evaluation.compare import compare
    from diptych.evaluation.runs import load_evaluations, pooled_names, seeds_of
    from diptych.evaluation.tables import check_format, comparison_table, render

    check_format(format)
    if len(runs) < 2:
        raise DiptychError("expected at least two runs to compare")
    seeds = [seeds_of(run) for run in runs]
    loaded = iter(load_evaluations([one for run in seeds for one in run], protocol, split))
    evaluations = {name: [next(loaded) for _ in run] for name, run in zip(pooled_names(runs), seeds, strict=True)}
    comparison = compare(evaluations, draws, permutations, confidence, seed)
    if as_json or format == "json":
        print(json.dumps(comparison.tree(), indent=2, ensure_ascii=False))
    else:
        print(render(comparison_table(comparison), format))
