"""Options that several commands take, each with the one sentence that their help says of it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

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
DeviceOption = Annotated[str, typer.Option(help="auto (a GPU where there is one), cpu, cuda or cuda:1.")]

# An index, and how scores of two stages become one.
IndexOption = Annotated[
    str | None, typer.Option("--index", "--store", help="A file, or milvus://host:port/name; by default your own.")
]
FusionName = Literal["replace", "sum", "rrf"]

# What is printed.
BesideOption = Annotated[
    str | None, typer.Option(metavar="TABLE", help="A published table, such as vse-infinity/table-4.")
]
FormatOption = Annotated[str, typer.Option(help="text, markdown, latex or json.")]
FiguresOption = Annotated[bool, typer.Option("--json", help="Print one JSON object of figures.")]
