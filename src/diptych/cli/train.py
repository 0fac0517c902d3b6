"""`diptych train`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.options import DeviceOption


def command(
    recipe: Annotated[Path, typer.Argument(help="A recipe: a TOML file, such as recipes/vse++-scenes.toml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, such as training.epochs=3.")] = None,
    variant: Annotated[str | None, typer.Option(help="One of the recipe's variants.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/<name>[-<variant>] by default.")] = None,
    init_from: Annotated[
        str | None, typer.Option(metavar="RUN", help="A run or a saved matcher whose weights a new run begins with.")
    ] = None,
    device: DeviceOption = "auto",
    devices: Annotated[int, typer.Option(min=1, help="Processes on this machine; under torchrun its own number.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False,
) -> None:
    """Train a recipe, or go on where its run stopped."""
    from diptych.training.loop import Device, outcome_tree, train
    from diptych.training.recipe import read_recipe

    resolved = read_recipe(recipe, variant, tuple(overrides or ()))
    run = out or Path("runs") / (resolved.name if variant is None else f"{resolved.name}-{variant}")
    outcome = train(resolved, run, Device(device, devices), init_from=init_from)
    if as_json and outcome.speaks:
        print(json.dumps(outcome_tree(outcome)))
    elif outcome.finished and outcome.speaks:
        best = outcome.position
        early = f", stopped early by training.patience after epoch {best.epoch}" if outcome.ended == "patience" else ""
        print(f"{run}: done{early}; best validation rsum {best.best_rsum:.1f} (epoch {best.best_epoch + 1})")
    if not outcome.finished:
        print(f"{run}: stopped at step {outcome.position.total}; the same command goes on from there", file=sys.stderr)
        raise typer.Exit(130)
