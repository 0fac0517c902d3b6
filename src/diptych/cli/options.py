"""Options that several commands take, each with the one sentence that their help says of it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from diptych.cli.completion import complete_device, complete_filter, complete_index, complete_model

RunsArgument = Annotated[
    list[str], typer.Argument(metavar="RUN ...", help="A run folder, a model folder, or a hub name.")
]

# What a model is judged on.
DataOption = Annotated[str | None, typer.Option(help="Anything that `diptych data` reads; else the run's own.")]
SplitOption = Annotated[str | None, typer.Option(help="Which split of the data; test by default.")]
FeaturesOption = Annotated[Path | None, typer.Option(help="Local features of the pictures in --data.")]
ImagesOption = Annotated[Path | None, typer.Option(help="The pictures of --data, where it does not say.")]
BatchSizeOption = Annotated[int, typer.Option(min=1, help="Pictures encoded at once.")]

# Where it is computed.
DeviceOption = Annotated[
    str, typer.Option(autocompletion=complete_device, help="auto (a GPU where there is one), cpu, cuda or cuda:1.")
]

# An index, and how scores of two stages become one.
IndexOption = Annotated[
    str | None,
    typer.Option(
        "--index",
        "--store",
        autocompletion=complete_index,
        help="A file, milvus://host:port/name or qdrant://host:port/name; by default your own.",
    ),
]
RerankOption = Annotated[
    str | None,
    typer.Option(metavar="MODEL", autocompletion=complete_model, help="Rescore the best with this model."),
]
# Which entries are meant.
FilterOption = Annotated[
    list[str] | None,
    typer.Option(
        autocompletion=complete_filter, help="Such as date>=2024-01-01 or album=holiday; repeatable, all must fit."
    ),
]
PathOption = Annotated[list[str] | None, typer.Option(metavar="GLOB", help="Only paths like this; repeatable.")]
# How they are shown.
SHOWING = "What is shown"
PathsOption = Annotated[
    bool, typer.Option("--paths", rich_help_panel=SHOWING, help="Paths alone, one a line, for other programs.")
]
NullOption = Annotated[
    bool,
    typer.Option(
        "--null", "-0", rich_help_panel=SHOWING, help="As --paths, each with a zero byte behind it, for `xargs -0`."
    ),
]
FusionName = Literal["replace", "sum", "rrf"]

# What is printed.
BesideOption = Annotated[
    str | None, typer.Option(metavar="TABLE", help="A published table, such as vse-infinity/table-4.")
]
FormatOption = Annotated[str, typer.Option(help="text, markdown, latex or json.")]
FiguresOption = Annotated[bool, typer.Option("--json", help="Print one JSON object of figures.")]
