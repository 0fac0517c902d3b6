"""`diptych sweep`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.options import DeviceOption, FormatOption


def command(
    recipe: Annotated[Path, typer.Argument(help="A recipe: a TOML file, such as recipes/vse++-scenes.toml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, for every trial.")] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=RANGE",
            help="What is varied: KEY=0.1..0.3, KEY=log:1e-5..1e-3, KEY=2..8 or KEY=a,b,c; may be given several times.",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="How many trials there are to be in all.")] = 20,
    variant: Annotated[str | None, typer.Option(help="One of the recipe's variants.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The sweep's folder; runs/<name>[-<variant>]-sweep by default.")
    ] = None,
    init_from: Annotated[
        str | None, typer.Option(metavar="RUN", help="A run or a saved matcher whose weights every trial begins with.")
    ] = None,
    prune: Annotated[bool, typer.Option(help="Stop a trial that is below the median of those before it.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Of what is tried; the recipe's own seed is training.seed.")] = 0,
    device: DeviceOption = "auto",
    format: FormatOption = "text",
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as one JSON object.")] = False,
) -> None:
    """Train a recipe with other values of some keys, chosen by what went well before, and show them in a table.

    Trials are judged by their validation RSUM. After a stop or a kill, the same command goes on; with more --trials a
    finished sweep does.
    """
    from diptych.common.files import write_text
    from diptych.evaluation.tables import check_format, render
    from diptych.training.loop import Device
    from diptych.training.sweep import SweepPlan, run_sweep, sweep_table
    from diptych.training.sweep_axes import parse_axis

    check_format(format)
    name = recipe.stem if variant is None else f"{recipe.stem}-{variant}"
    plan = SweepPlan(
        recipe,
        out or Path("runs") / f"{name}-sweep",
        tuple(parse_axis(text) for text in over or ()),
        variant,
        tuple(overrides or ()),
        init_from,
        prune,
        seed,
    )
    result = run_sweep(plan, trials, Device(device), tell=lambda line: print(line, file=sys.stderr))
    table = sweep_table(plan, result)
    write_text(plan.out / "table.md", render(table, "markdown") + "\n")
    write_text(plan.out / "table.json", render(table, "json") + "\n")
    print(render(table, "json" if as_json else format))
    if not result.finished:
        print(f"{plan.out}: stopped; the same command goes on from here", file=sys.stderr)
        raise typer.Exit(130)
    best = result.trials[0]
    if best.rsum is not None:
        print(f"{plan.out}: done; the best is {best.run}, validation rsum {best.rsum:.1f}", file=sys.stderr)
