"""`diptych evaluate-cost`: how long runs take to score, once all is encoded."""

from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from diptych.evaluation.cost import Cost


def command(
    runs: RunsArgument,
    rerank: Annotated[
        str | None, typer.Option(metavar="RUN", help="A slower run that rescores the best of each query.")
    ] = None,
    depth: Annotated[float, typer.Option(help="The part of each query's answers that is rescored.")] = 0.1,
    queries: Annotated[int, typer.Option(min=1, help="Sentences that are asked one by one.")] = 20,
    data: DataOption = None,
    split: SplitOption = None,
    features: FeaturesOption = None,
    images: ImagesOption = None,
    device: DeviceOption = "auto",
    batch_size: BatchSizeOption = 64,
    beside: BesideOption = None,
    format: FormatOption = "text",
    as_json: FiguresOption = False,
) -> None:
    """What scoring costs once all is encoded: one sentence against all pictures, all pairs, operations a pair."""
    from diptych.cli.given_data import GivenData, read_given
    from diptych.cli.models import load_model
    from diptych.cli.printing import print_figures
    from diptych.evaluation.cost import check_times, cost_table, reranked_cost, scoring_cost
    from diptych.evaluation.encode import encode_collection
    from diptych.evaluation.published import published
    from diptych.evaluation.runs import run_names
    from diptych.evaluation.tables import check_format, render

    check_format(format)
    table = None if beside is None else published(beside)
    if table is not None:
        check_times(table)
    if not 0 < depth <= 1:
        raise DiptychError(f"depth: expected a part above 0 and at most 1, got {depth}")
    collection = read_given(GivenData(data, split, features, images), runs).collection
    slow = None if rerank is None else load_model(rerank, device)
    second = None if slow is None else encode_collection(slow, collection, batch_size)
    costs: dict[str, Cost] = {}
    for run, name in zip(runs, run_names(runs), strict=True):
        matcher = load_model(run, device)
        kept = encode_collection(matcher, collection, batch_size)
        costs[name] = scoring_cost(matcher, *kept, queries)
        if slow is not None and second is not None and rerank is not None and run != rerank:
            label = f"{name}, then {run_names([rerank])[0]}"
            costs[label] = reranked_cost(matcher, slow, kept, second, depth, queries)
    if as_json:
        print_figures({name: cost.figures() for name, cost in costs.items()})
        return
    sentences = sum(len(item.sentences) for item in collection.items)
    print(render(cost_table(costs, table, len(collection), sentences), format))
