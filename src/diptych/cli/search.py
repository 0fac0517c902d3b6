"""`diptych search`."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diptych.cli.config_file import ConfigOption
from diptych.cli.options import (
    SHOWING,
    DeviceOption,
    FilterOption,
    FusionName,
    IndexOption,
    NullOption,
    PathOption,
    PathsOption,
    RerankOption,
)
from diptych.cli.preview import PreviewName
from diptych.common.errors import DiptychError

if TYPE_CHECKING:
    from diptych.search.asking.query import SearchQuery
    from diptych.search.asking.results import RankedResults

AT_ONCE = 64


def command(
    query: Annotated[
        list[str] | None,
        typer.Argument(
            help="A sentence; a picture, ./pic.jpg or @pic.jpg; terms with + and -: dogs + 2:snow - @grass.jpg; "
            'or "-": a query on each line.'
        ),
    ] = None,
    image: Annotated[list[Path] | None, typer.Option(help="A picture to search with; repeatable.")] = None,
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="Most results.")] = 10,
    threshold: Annotated[float | None, typer.Option(help="Least score.")] = None,
    confidence: Annotated[float | None, typer.Option(min=0, max=1, help="Least confidence, 0 to 1.")] = None,
    filter: FilterOption = None,
    path: PathOption = None,
    sentences: Annotated[
        bool, typer.Option("--sentences/--pictures", help="Look for sentences, not pictures.")
    ] = False,
    index: IndexOption = None,
    rerank: RerankOption = None,
    depth: Annotated[int, typer.Option(min=1, help="How many are rescored.")] = 100,
    fusion: Annotated[FusionName, typer.Option(help="How both scores become one.")] = "sum",
    group_duplicates: Annotated[
        bool,
        typer.Option("--group-duplicates/--apart", help="Show near duplicates as one result."),
    ] = False,
    sort: Annotated[
        str | None, typer.Option(help="Order of what was found: date, path, width, …; -date is newest first.")
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Of the query, such as es, where it is not English; Apertium translates it.")
    ] = None,
    device: DeviceOption = "auto",
    config: ConfigOption = None,
    paths: PathsOption = False,
    null: NullOption = False,
    preview: Annotated[
        bool,
        typer.Option(
            "--preview/--no-preview", rich_help_panel=SHOWING, help="Also the pictures, where this is a terminal."
        ),
    ] = False,
    preview_with: Annotated[
        PreviewName,
        typer.Option(rich_help_panel=SHOWING, help="How pictures are shown; auto is what the terminal can."),
    ] = "auto",
    open_first: Annotated[
        bool, typer.Option("--open", rich_help_panel=SHOWING, help="Open the first result in the system's viewer.")
    ] = False,
    open_all: Annotated[bool, typer.Option("--open-all", rich_help_panel=SHOWING, help="Open all of them.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", rich_help_panel=SHOWING, help="Print one JSON object for each query.")
    ] = False,
) -> None:
    """Search your pictures by sentence, by picture, or by several of both; prints score, confidence and path.

    The exit status is 1 where nothing is found.
    """
    from diptych.cli.own_index import named_or_own
    from diptych.cli.preview import Preview
    from diptych.cli.results import Form, Printer
    from diptych.cli.viewer import open_entries
    from diptych.search.asking.columns import check_columns
    from diptych.search.asking.duplicates import NEAR
    from diptych.search.asking.query import parse_filter, path_filter
    from diptych.search.asking.rerank import Rerank
    from diptych.search.index import Index

    from_lines = query == ["-"]
    queries = None if from_lines else [_query(query or [], image or [])]
    where = [*(parse_filter(text) for text in filter or []), *(path_filter(text) for text in path or [])]
    options: dict[str, Any] = {
        "kind": "sentence" if sentences else "picture",
        "where": where,
        "threshold": threshold,
        "least_confidence": confidence,
        # Nobody sees it, and working it out takes a moment.
        "confidence": not (paths or null) or (sort or "").strip(" -") == "confidence",
        "rerank": None if rerank is None else Rerank(rerank, depth, fusion),
        "group": NEAR if group_duplicates else None,
        "sort": sort,
        "language": language,
    }
    form: Form = "json" if as_json else "null" if null else "paths" if paths else "lines"
    printer = Printer(form, Preview(preview_with) if preview and form == "lines" else None)
    address = named_or_own(index)
    found: list[str] = []
    with Index.open(address, device=device) as opened:
        if not len(opened):
            raise DiptychError("the index is empty; fill it with `diptych index FOLDER`", where=address)
        check_columns(opened.store, where)

        def tell(answer: "RankedResults", text: str | None) -> None:
            printer.tell(answer, text)
            found.extend(result.key for result in answer.results)

        if queries is not None:
            for answer in opened.search_batch(queries, top, **options):
                tell(answer, None)
        else:
            for some in _lines(sys.stdin):
                answers = opened.search_batch([asked for _, asked in some], top, **options)
                for (text, _), answer in zip(some, answers, strict=True):
                    tell(answer, text)
    if not found:
        raise typer.Exit(1)
    if open_first or open_all:
        open_entries(found if open_all else found[:1])


def _query(words: list[str], images: list[Path]) -> "SearchQuery":
    from diptych.search.asking.query import SearchQuery, Term, parse_terms, with_pictures

    return SearchQuery(tuple(with_pictures([*parse_terms(words), *(Term(image) for image in images)])))


def _lines(file: Any) -> Iterator[list[tuple[str, "SearchQuery"]]]:
    """Queries from lines, some at a time; one by one where a person types them."""
    from diptych.search.asking.query import SearchQuery, parse_line, with_pictures

    lines: Iterable[str] = (line.strip() for line in file)
    queries = ((line, SearchQuery(tuple(with_pictures(parse_line(line).terms)))) for line in lines if line)
    most = 1 if file.isatty() else AT_ONCE
    while some := list(islice(queries, most)):
        yield some
