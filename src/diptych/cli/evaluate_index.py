"""`diptych evaluate-index`: how exact and how quick searching an index is."""

import json
from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.options import DeviceOption, FiguresOption, FusionName, IndexOption
from diptych.common.errors import DiptychError


def command(
    index: IndexOption = None,
    queries: Annotated[
        Path | None, typer.Option(help="A text file of sentences to search with; else the index's own.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Results a query.")] = 10,
    rerank: Annotated[
        str | None, typer.Option(metavar="MODEL", help="A slower model that rescores the best of each query.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option(min=1, help="With --rerank, how many are rescored; 100.", show_default=False)
    ] = None,
    fusion: Annotated[
        FusionName | None, typer.Option(help="With --rerank, how both scores become one; sum.", show_default=False)
    ] = None,
    device: DeviceOption = "auto",
    as_json: FiguresOption = False,
) -> None:
    """How good searching an index is: recall against exact search, latency, and what re-ranking adds."""
    from diptych.cli.own_index import named_or_own
    from diptych.search.asking.rerank import Rerank
    from diptych.search.evaluate_search import describe, evaluate_index

    for name, value in (("--depth", depth), ("--fusion", fusion)):
        if rerank is None and value is not None:
            raise DiptychError("belongs to --rerank, which is not given", where=name)
    second = None if rerank is None else Rerank(rerank, depth or 100, fusion or "sum")
    figures = evaluate_index(named_or_own(index), queries, top=top, rerank=second, device=device)
    print(json.dumps(figures, ensure_ascii=False) if as_json else describe(figures))
