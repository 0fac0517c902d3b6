"""`diptych evaluate-near-misses`: whether runs on drawn scenes tell right from almost right."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.options import DeviceOption, FiguresOption, FormatOption, RunsArgument
from diptych.common.errors import DiptychError

if TYPE_CHECKING:
    from diptych.data.scenes.features import RegionKind
    from diptych.evaluation.tables import FigureTable


def command(
    runs: RunsArgument,
    count: Annotated[int, typer.Option(min=1, help="How many pairs are drawn.")] = 600,
    device: DeviceOption = "auto",
    format: FormatOption = "text",
    as_json: FiguresOption = False,
) -> None:
    """How often the right one of two scores higher, of drawn scenes and sentences that differ in one attribute."""
    from diptych.cli.models import load_model
    from diptych.cli.printing import print_figures
    from diptych.data.scenes import near_miss_set
    from diptych.evaluation.near_misses import near_miss_figures
    from diptych.evaluation.runs import run_names
    from diptych.evaluation.tables import check_format, render

    check_format(format)
    figures: dict[str, dict[str, float]] = {}
    for run, name in zip(runs, run_names(runs), strict=True):
        seed, regions = trained_on_scenes(run)
        # Another seed than the recipe's: pairs that no recipe trains on.
        figures[name] = near_miss_figures(load_model(run, device), near_miss_set(count, seed=seed + 1), regions)
    if as_json:
        print_figures(figures)
        return
    print(render(_table(figures, count), format))


def trained_on_scenes(run: str) -> tuple[int, "RegionKind"]:
    """The seed of the scenes that a run was trained on, and the regions that it takes of them."""
    from diptych.training.data import ScenesConfig
    from diptych.training.recipe import load_run_recipe

    data = load_run_recipe(Path(run)).data if (Path(run) / "recipe.json").is_file() else None
    if not isinstance(data, ScenesConfig):
        raise DiptychError("near misses are drawn scenes, and this is no run on drawn scenes", where=run)
    return data.seed, "boxes" if data.regions == "none" else data.regions


def _table(figures: dict[str, dict[str, float]], count: int) -> "FigureTable":
    """A run a row, an attribute a column."""
    from diptych.evaluation.tables import FigureTable

    names = list(next(iter(figures.values())))
    return FigureTable(
        columns=("method", *(name.removeprefix("near-miss/") for name in names)),
        rows=tuple((run, *(values[name] for name in names)) for run, values in figures.items()),
        title=f"near misses: the right one of two scores higher, in percent of {count:,} pairs; chance is 50",
        records=[{"method": run, **values} for run, values in figures.items()],
    )
