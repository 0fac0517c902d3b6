"""The `diptych` command: a table of commands, each imported only when it is asked for."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from diptych import __version__
from diptych.common.errors import DiptychError, nearest

COMMANDS = {
    "data": "Say what a dataset holds, and everything that is wrong with it.",
    "scenes": "Draw scenes with sentences, boxes and near misses, from a seed.",
    "features": "Turn pictures into local features once.",
    "train": "Train a recipe, or go on where a run stopped.",
    "evaluate": "Recall and more of a run, under a protocol.",
    "evaluate-reranked": "Recall of two stages: a slower run rescores the best of each query.",
    "evaluate-near-misses": "Whether runs on drawn scenes tell right from almost right.",
    "compare": "Runs side by side, with intervals and a paired test.",
    "ablate": "Train and evaluate every variant of a recipe, beside the paper's rows.",
    "convert": "Turn an authors' checkpoint into a Diptych folder.",
    "report": "A run on one page: curves, tables, examples and failures.",
    "explain": "Show why a picture and a sentence match.",
    "pooling": "The synthetic pooling experiment of VSE∞'s supplement, Table 6.",
    "index": "Index pictures and sentences; only what is new or changed is embedded.",
    "search": "Search your pictures by sentence or picture.",
    "evaluate-index": "How exact and how quick searching an index is.",
    "serve": "Serve the page and the HTTP interface of an index.",
    "demo": "Index fifty photographs, or your own, search them and serve the page.",
}

# Options that became commands.
MOVED = {
    ("evaluate", "--index"): "evaluate-index",
    ("evaluate", "--store"): "evaluate-index",
    ("evaluate", "--rerank"): "evaluate-reranked",
    ("evaluate", "--near-misses"): "evaluate-near-misses",
}


def module_of(name: str) -> str:
    """The module of a command."""
    return f"diptych.cli.{name.replace('-', '_')}"


def function_of(name: str) -> Callable[..., None]:
    """The function that a command runs; its parameters are the command's options."""
    return import_module(module_of(name)).command


def overview() -> str:
    """What `diptych --help` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        ["usage: diptych COMMAND [--help]", "", "Matches pictures and sentences, and shows why.", "", *lines]
    )


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview())
        return 0
    if arguments[0] == "--version":
        print(f"diptych {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"diptych: unknown command {name!r}; {nearest(name, list(COMMANDS))}", file=sys.stderr)
        return 2
    if (moved := _moved(name, rest)) is not None:
        print(f"diptych {name}: {moved}", file=sys.stderr)
        return 2
    import typer

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    function = function_of(name)
    app.command(help=function.__doc__)(function)
    try:
        app(rest, prog_name=f"diptych {name}")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except DiptychError as error:
        print(f"diptych {name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"diptych {name}: interrupted", file=sys.stderr)
        return 130
    return 0


def _moved(name: str, arguments: Sequence[str]) -> str | None:
    """A sentence where an option has become a command of its own."""
    for argument in arguments:
        option = argument.partition("=")[0]
        if (name, option) in MOVED:
            return f"{option}: is a command of its own; see `diptych {MOVED[name, option]} --help`"
    return None


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
