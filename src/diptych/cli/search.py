"""`diptych search`."""

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diptych.cli.options import DeviceOption, FusionName, IndexOption
from diptych.common.errors import DiptychError

if TYPE_CHECKING:
    from diptych.search.asking.query import SearchQuery
    from diptych.search.asking.results import RankedResults

AT_ONCE = 64


def command(
    query: Annotated[
        list[str] | None,
        typer.Argument(
            help='A sentence; terms with + and -: dogs + 2:snow - @grass.jpg; or "-": a query on each line.'
        ),
    ] = None,
    image: Annotated[list[Path] | None, typer.Option(help="A picture to search with; repeatable.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Most results.")] = 10,
    threshold: Annotated[float | None, typer.Option(help="Least score.")] = None,
    confidence: Annotated[float | None, typer.Option(min=0, max=1, help="Least confidence, 0 to 1.")] = None,
    filter: Annotated[
        list[str] | None, typer.Option(help="Such as date>=2024-01-01 or album=holiday; repeatable, all must fit.")
    ] = None,
    path: Annotated[list[str] | None, typer.Option(metavar="GLOB", help="Only paths like this; repeatable.")] = None,
    sentences: Annotated[bool, typer.Option("--sentences", help="Look for sentences, not pictures.")] = False,
    index: IndexOption = None,
    rerank: Annotated[str | None, typer.Option(metavar="MODEL", help="Rescore the best with this model.")] = None,
    depth: Annotated[int, typer.Option(min=1, help="How many are rescored.")] = 100,
    fusion: Annotated[FusionName, typer.Option(help="How both scores become one.")] = "sum",
    group_duplicates: Annotated[
        bool, typer.Option("--group-duplicates", help="Show near duplicates as one result.")
    ] = False,
    device: DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each query.")] = False,
) -> None:
    """Search your pictures by sentence, by picture, or by several of both; prints score and path."""
    from diptych.cli.own_index import named_or_own
    from diptych.search.asking.duplicates import NEAR
    from diptych.search.asking.query import parse_filter, path_filter
    from diptych.search.asking.rerank import Rerank
    from diptych.search.index import Index

    from_lines = query == ["-"]
    lines = _lines(sys.stdin) if from_lines else None
    queries = None if from_lines else [_query(query or [], image or [])]
    options: dict[str, Any] = {
        "kind": "sentence" if sentences else "picture",
        "where": [*(parse_filter(text) for text in filter or []), *(path_filter(text) for text in path or [])],
        "threshold": threshold,
        "least_confidence": confidence,
        "rerank": None if rerank is None else Rerank(rerank, depth, fusion),
        "group": NEAR if group_duplicates else None,
    }
    address = named_or_own(index)
    with Index.open(address, device=device) as opened:
        if not len(opened):
            raise DiptychError("the index is empty; fill it with `diptych index FOLDER`", where=address)
        if queries is not None:
            for answer in opened.search_batch(queries, top, **options):
                _tell(answer, None, as_json)
            return
        assert lines is not None
        for some in lines:
            for (text, _), answer in zip(some, opened.search_batch([q for _, q in some], top, **options), strict=True):
                _tell(answer, text, as_json)


def _query(words: list[str], images: list[Path]) -> "SearchQuery":
    from diptych.search.asking.query import SearchQuery, Term, parse_terms

    return SearchQuery((*parse_terms(words), *(Term(image) for image in images)))


def _lines(file: Any) -> Iterator[list[tuple[str, "SearchQuery"]]]:
    """Queries from lines, some at a time; one by one where a person types them."""
    from diptych.search.asking.query import parse_line

    lines: Iterable[str] = (line.strip() for line in file)
    queries = ((line, parse_line(line)) for line in lines if line)
    most = 1 if file.isatty() else AT_ONCE
    while some := list(islice(queries, most)):
        yield some


def _tell(answer: "RankedResults", query: str | None, as_json: bool) -> None:
    if as_json:
        told = answer.to_json() if query is None else {"query": query, **answer.to_json()}
        print(json.dumps(told, ensure_ascii=False), flush=True)
        return
    if query is not None:
        print(f"# {query}")
    for result in answer.results:
        text = f"\t{result.text}" if result.text else ""
        more = f"\t(and {len(result.duplicates)} like it)" if result.duplicates else ""
        print(f"{result.score:.3f}\t{result.path}{text}{more}", flush=True)
    if not answer.results:
        print("nothing found", file=sys.stderr)
    elif answer.matches is False:
        best = max(result.confidence or 0.0 for result in answer.results)
        print(f"note: nothing here seems to match (confidence {best:.2f} at best)", file=sys.stderr)
