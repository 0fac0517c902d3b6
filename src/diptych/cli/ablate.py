"""`diptych ablate`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.options import DeviceOption, FormatOption


def command(
    recipe: Annotated[Path, typer.Argument(help="A recipe with variants, such as recipes/camp-scenes.toml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, for every variant.")] = None,
    variants: Annotated[
        str | None, typer.Option(help="Only these, separated by commas; `main` is the recipe itself.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds each variant is trained with.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Where the runs go; runs/<name>-ablation by default.")] = None,
    protocol: Annotated[
        str | None, typer.Option(help="How runs are judged; by default as the paper's rows were.")
    ] = None,
    device: DeviceOption = "auto",
    format: FormatOption = "text",
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as one JSON object.")] = False,
) -> None:
    """Train and evaluate every variant of a recipe, and print one table beside the paper's rows.

    What is done already is not done again: after a stop, the same command goes on.
    """
    from diptych.common.files import write_text
    from diptych.evaluation.protocols import check_protocol
    from diptych.evaluation.tables import check_format, render
    from diptych.training.ablation import Row, ablation_table, plan, run_trial
    from diptych.training.loop import Device
    from diptych.training.paper_rows import protocol_of, row_beside

    check_format(format)
    if protocol is not None:
        check_protocol(protocol)
    folder = out or Path("runs") / f"{recipe.stem}-ablation"
    chosen = [v.strip() for v in variants.split(",")] if variants else None
    trials = plan(recipe, folder, chosen, range(seeds), tuple(overrides or ()))
    judged = protocol or protocol_of([trial.recipe for trial in trials])
    results = []
    for number, trial in enumerate(trials, 1):
        print(f"{number}/{len(trials)}: {trial.variant}, seed {trial.seed}", file=sys.stderr)
        result = run_trial(trial, judged, Device(device))
        if result is None:
            print(f"{folder}: stopped; the same command goes on from here", file=sys.stderr)
            raise typer.Exit(130)
        results.append(result)
    rows = []
    for name in dict.fromkeys(trial.variant for trial in trials):
        mine = [i for i, trial in enumerate(trials) if trial.variant == name]
        evaluations = tuple(results[i] for i in mine)
        rows.append(Row(name, evaluations, row_beside(trials[mine[0]].recipe, evaluations)))
    changed = trials[0].recipe.changed if any(trial.recipe.paper_row for trial in trials) else ()
    table = ablation_table(rows, f"{recipe.stem}: {judged}, test split", changed)
    write_text(folder / "table.md", render(table, "markdown") + "\n")
    write_text(folder / "table.json", render(table, "json") + "\n")
    print(render(table, "json" if as_json else format))
