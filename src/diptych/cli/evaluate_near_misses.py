"""`diptych evaluate-near-misses`: whether runs tell right from almost right, on drawn scenes or real pictures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.options import (
    BatchSizeOption,
    DeviceOption,
    FeaturesOption,
    FiguresOption,
    FormatOption,
    ImagesOption,
    RunsArgument,
    SplitOption,
)
from diptych.common.errors import DiptychError

WIDEST = 100  # columns of a terminal

if TYPE_CHECKING:
    from diptych.data.scenes.features import RegionKind
    from diptych.evaluation.tables import FigureTable


def command(
    runs: RunsArgument,
    count: Annotated[int, typer.Option(min=1, help="How many pairs of scenes are drawn.")] = 600,
    data: Annotated[
        str | None, typer.Option(help="Anything that `diptych data` reads; without it, scenes are drawn.")
    ] = None,
    split: SplitOption = None,
    features: FeaturesOption = None,
    images: ImagesOption = None,
    statements: Annotated[
        Path | None, typer.Option(help="Statements on COCO's pictures, true and false, as lines of JSON.")
    ] = None,
    pictures: Annotated[int | None, typer.Option(min=1, help="How many pictures of --data; all by default.")] = None,
    device: DeviceOption = "auto",
    batch_size: BatchSizeOption = 64,
    format: FormatOption = "text",
    as_json: FiguresOption = False,
) -> None:
    """How often the right one of two scores higher: drawn scenes, or captions of --data with one word changed."""
    from diptych.cli.models import load_model
    from diptych.cli.printing import print_figures
    from diptych.data.scenes import near_miss_set
    from diptych.evaluation.near_misses import near_miss_figures
    from diptych.evaluation.runs import run_names
    from diptych.evaluation.tables import check_format, render

    check_format(format)
    if data is not None:
        from diptych.cli.given_data import GivenData
        from diptych.cli.real_near_misses import print_real_near_misses

        given = GivenData(data, split, features, images)
        print_real_near_misses(runs, given, statements, pictures, device, batch_size, format, as_json)
        return
    if split or features or images or statements or pictures:
        raise DiptychError("--split, --features, --images, --statements and --pictures belong to --data")
    figures: dict[str, dict[str, float]] = {}
    for run, name in zip(runs, run_names(runs), strict=True):
        seed, regions = trained_on_scenes(run)
        # Another seed than the recipe's: pairs that no recipe trains on.
        figures[name] = near_miss_figures(load_model(run, device), near_miss_set(count, seed=seed + 1), regions)
    if as_json:
        print_figures(figures)
        return
    print(render(_table(figures, count, WIDEST if format == "text" else None), format))


def trained_on_scenes(run: str) -> tuple[int, "RegionKind"]:
    """The seed of the scenes that a run was trained on, and the regions that it takes of them."""
    from diptych.training.data import ScenesConfig
    from diptych.training.recipe import load_run_recipe

    data = load_run_recipe(Path(run)).data if (Path(run) / "recipe.json").is_file() else None
    if not isinstance(data, ScenesConfig):
        raise DiptychError("this is no run on drawn scenes; give --data for near misses on real pictures", where=run)
    return data.seed, "boxes" if data.regions == "none" else data.regions


def _table(figures: dict[str, dict[str, float]], count: int, widest: int | None) -> "FigureTable":
    """A run a row, an attribute a column; where names make it too wide, runs go by number and are told below."""
    from diptych.evaluation.tables import FigureTable, render

    names = list(next(iter(figures.values())))

    def table(runs: list[str], notes: tuple[str, ...] = ()) -> FigureTable:
        return FigureTable(
            columns=("method", *(name.removeprefix("near-miss/") for name in names)),
            rows=tuple(
                (run, *(values[name] for name in names)) for run, values in zip(runs, figures.values(), strict=True)
            ),
            title=f"near misses: the right one of two scores higher, in percent of {count:,} pairs; chance is 50",
            notes=notes,
            records=[{"method": run, **values} for run, values in figures.items()],
        )

    named = table(list(figures))
    if widest is None or max(map(len, render(named).splitlines())) <= widest:
        return named
    numbers = [str(number) for number in range(1, 1 + len(figures))]
    return table(numbers, tuple(f"{number}: {run}" for number, run in zip(numbers, figures, strict=True)))
