"""The `diptych` command: a table of commands, each imported only when it is asked for."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from diptych import __version__
from diptych.common.errors import nearest
from diptych.common.machine import machine_error

PROGRAM = "diptych"
# A shell that wants to know how a line may go on sets this variable.
COMPLETION = "_DIPTYCH_COMPLETE"
INTERRUPTED = 130

# What `diptych --help` shows, panel by panel.
PANELS = {
    "Your pictures": {
        "index": "Index pictures and sentences; only what is new or changed is embedded.",
        "embed": "Embed pictures in bulk into parquet parts, on one machine or many.",
        "search": "Search your pictures by sentence or picture.",
        "list": "List what an index holds.",
        "info": "Say what an index is: its model, its folders, its size.",
        "remove": "Take pictures and sentences out of an index.",
        "serve": "Serve the page and the HTTP interface of an index.",
        "explain": "Show why a picture and a sentence match.",
        "demo": "Index fifty photographs, or your own, search them and serve the page.",
        "config": "Show the file of what you always type, or an example of it.",
    },
    "Research: data": {
        "data": "Say what a dataset holds, and everything that is wrong with it.",
        "scenes": "Draw scenes with sentences, boxes and near misses, from a seed.",
        "features": "Turn pictures into local features once.",
    },
    "Research: models": {
        "train": "Train a recipe, or go on where a run stopped.",
        "ablate": "Train and evaluate every variant of a recipe, beside the paper's rows.",
        "sweep": "Train a recipe over ranges of its keys, and show what did best.",
        "blend": "Average the weights of runs that began alike into one model.",
        "level": "Take off what pictures and sentences score with anything; no training.",
        "convert": "Turn an authors' checkpoint into a Diptych folder.",
        "pooling": "The synthetic pooling experiment of VSE∞'s supplement, Table 6.",
    },
    "Research: figures": {
        "evaluate": "Recall and more of a run, under a protocol.",
        "evaluate-reranked": "Recall of two stages: a slower run rescores the best of each query.",
        "evaluate-cost": "What scoring costs: one query, all pairs, operations a pair.",
        "evaluate-near-misses": "Whether runs tell right from almost right, in drawn scenes or real captions.",
        "evaluate-index": "How exact and how quick searching an index is.",
        "compare": "Runs side by side, with intervals and a paired test.",
        "report": "A run on one page: curves, tables, examples and failures.",
    },
}
COMMANDS = {name: text for panel in PANELS.values() for name, text in panel.items()}

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


def load_command(name: str) -> Any:
    """A command as the parser knows it; its module is imported now."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    function = function_of(name)
    app.command(name=name, help=function.__doc__)(function)
    return typer.main.get_command(app)


class CommandTable(TyperGroup):
    """All commands. What help and completion show of them needs no import; the one that runs is loaded."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command's name, line and panel."""
        panel = next((title for title, commands in PANELS.items() if cmd_name in commands), None)
        return panel and TyperCommand(cmd_name, help=COMMANDS[cmd_name], rich_help_panel=panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is to run, and what it is given."""
        name, *rest = args
        return (name, load_command(name), rest) if name in COMMANDS else (None, None, rest)


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"diptych {__version__}")
        raise typer.Exit


def _begin(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Matches pictures and sentences, and shows why."""


def build_app() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        cls=CommandTable, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
    )
    app.callback()(_begin)
    return app


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    if not arguments and COMPLETION not in os.environ:
        arguments = ["--help"]
    name, *rest = arguments or [""]
    if name and not name.startswith("-") and name not in COMMANDS:
        print(f"diptych: unknown command {name!r}; {nearest(name, list(COMMANDS))}", file=sys.stderr)
        return 2
    if (moved := _moved(name, rest)) is not None:
        print(f"diptych {name}: {moved}", file=sys.stderr)
        return 2
    try:
        build_app()(arguments, prog_name=PROGRAM)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if status == INTERRUPTED:
            print(f"diptych {name}: interrupted", file=sys.stderr)
        return status
    except KeyboardInterrupt:
        print(f"diptych {name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        sentence = machine_error(error)
        if sentence is None:
            raise
        print(f"diptych {name}: {sentence}", file=sys.stderr)
        return 1
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
    if isinstance(sys.stdout, TextIOWrapper):
        # A name that the terminal's encoding does not have must not cost the answer.
        with suppress(OSError):
            sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = run(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has enough, as in `diptych --help | head -1`
        status = _unread()
    except OSError as error:
        print(f"diptych: the answer cannot be written: {error.strerror}", file=sys.stderr)
        status = _unread()
    sys.exit(status)


def _unread() -> int:
    """The exit status where standard output takes no more; Python must not try once again when it ends."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1


if __name__ == "__main__":
    main()
