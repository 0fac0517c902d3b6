"""`diptych evaluate-reranked`: two stages judged as one."""

from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.options import (
    BatchSizeOption,
    BesideOption,
    DataOption,
    DeviceOption,
    FeaturesOption,
    FiguresOption,
    FormatOption,
    FusionName,
    ImagesOption,
    RunsArgument,
    SplitOption,
)
from diptych.common.errors import DiptychError


def command(
    runs: RunsArgument,
    rerank: Annotated[str, typer.Option(metavar="RUN", help="A slower run that rescores the best of each query.")],
    depth: Annotated[float, typer.Option(help="The part of each query's answers that is rescored.")] = 0.1,
    fusion: Annotated[FusionName, typer.Option(help="How both scores become one.")] = "sum",
    data: DataOption = None,
    split: SplitOption = None,
    features: FeaturesOption = None,
    images: ImagesOption = None,
    device: DeviceOption = "auto",
    batch_size: BatchSizeOption = 64,
    beside: BesideOption = None,
    out: Annotated[Path | None, typer.Option(help="Where the result goes; it is not kept by default.")] = None,
    format: FormatOption = "text",
    as_json: FiguresOption = False,
) -> None:
    """Recall of two stages, on all pairs: a run ranks everything, a slower one rescores the best of each query."""
    from diptych.cli.given_data import GivenData, read_given
    from diptych.cli.models import load_model
    from diptych.cli.printing import keep, print_evaluations
    from diptych.evaluation.published import published
    from diptych.evaluation.rerank import evaluate_reranked
    from diptych.evaluation.result import Evaluation
    from diptych.evaluation.runs import run_names
    from diptych.evaluation.tables import check_format

    check_format(format)
    table = None if beside is None else published(beside)
    if out is not None and len(runs) > 1:
        raise DiptychError("--out: several runs would overwrite each other there; evaluate them one by one")
    results: dict[str, Evaluation] = {}
    for run, name in zip(runs, run_names(runs), strict=True):
        read = read_given(GivenData(data, split, features, images), [run])
        fast, slow = load_model(run, device), load_model(rerank, device)
        result = evaluate_reranked(fast, slow, read.collection, depth, batch_size, fusion)
        notes = (*read.notes, f"the top {100 * depth:g} % rescored by {rerank}, {fusion}")
        result = result.described(model=run, data=read.source, split=read.split, notes=notes)
        keep(result, out)
        results[f"{name}, re-ranked"] = result
    print_evaluations(results, table, format, as_json)
