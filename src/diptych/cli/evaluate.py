"""`diptych evaluate`: recall and more of runs, under a protocol."""

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
    ImagesOption,
    RunsArgument,
    SplitOption,
)
from diptych.common.errors import DiptychError


def command(
    runs: RunsArgument,
    protocol: Annotated[str, typer.Option(help="flickr30k, coco-1k, coco-5k, eccv, cxc or all-pairs.")] = "all-pairs",
    data: DataOption = None,
    split: SplitOption = None,
    features: FeaturesOption = None,
    images: ImagesOption = None,
    device: DeviceOption = "auto",
    batch_size: BatchSizeOption = 64,
    precision: Annotated[
        str,
        typer.Option(
            help="What scores are computed in: float32; fp16 or the coarser bf16, on a GPU several times as fast."
        ),
    ] = "float32",
    ensemble: Annotated[bool, typer.Option("--ensemble", help="Evaluate the mean of the runs' scores.")] = False,
    beside: BesideOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the results go; RUN/evaluations by default, not kept for an ensemble.")
    ] = None,
    format: FormatOption = "text",
    as_json: FiguresOption = False,
) -> None:
    """Recall and more of a run, under a protocol."""
    from diptych.cli.given_data import GivenData, read_given
    from diptych.cli.models import load_model
    from diptych.cli.printing import keep, print_evaluations
    from diptych.common.precision import half_of
    from diptych.evaluation.evaluate import evaluate_ensemble, evaluate_matcher
    from diptych.evaluation.protocols import check_protocol
    from diptych.evaluation.published import published
    from diptych.evaluation.result import Evaluation
    from diptych.evaluation.runs import evaluations_folder, run_names
    from diptych.evaluation.tables import check_format

    check_protocol(protocol)
    check_format(format)
    dtype = half_of(precision)
    table = None if beside is None else published(beside)
    if out is not None and len(runs) > 1 and not ensemble:
        raise DiptychError("--out: several runs would overwrite each other there; evaluate them one by one")
    given = GivenData(data, split, features, images)
    results: dict[str, Evaluation] = {}
    if ensemble:
        read = read_given(given, runs, protocol)
        matchers = [load_model(run, device) for run in runs]
        result = evaluate_ensemble(matchers, read.collection, protocol, batch_size, dtype=dtype)
        name = " + ".join(run_names(runs))
        results[name] = result.described(model=name, data=read.source, split=read.split, notes=read.notes)
        keep(results[name], out)
    else:
        for run, name in zip(runs, run_names(runs), strict=True):
            read = read_given(given, [run], protocol)
            matcher = load_model(run, device)
            result = evaluate_matcher(matcher, read.collection, protocol, batch_size, dtype=dtype)
            results[name] = result.described(model=run, data=read.source, split=read.split, notes=read.notes)
            keep(results[name], out or evaluations_folder(run))
    print_evaluations(results, table, format, as_json)
