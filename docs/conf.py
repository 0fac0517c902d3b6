import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer.main
from typer import Typer

from diptych.cli.main import COMMANDS

project = "Diptych"
copyright = "The Diptych authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Diptych"
html_static_path = ["_static"]
html_css_files = ["diptych.css"]
exclude_patterns = ["_build"]
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
default_role = "code"
# Shapes such as (images, regions, d) are not cross-references.
nitpicky = False

# `diptych COMMAND --help` as Markdown: docs/cli.md holds this mark, and the build puts every command in its place.
COMMANDS_MARK = "<!-- commands -->"


def describe_commands() -> str:
    """Every command with its arguments and options, from the functions that the command line runs."""
    parts = []
    for name in COMMANDS:
        if find_spec(f"diptych.cli.{name}") is None:
            continue
        function = import_module(f"diptych.cli.{name}").command
        app = Typer(add_completion=False)
        app.command(help=function.__doc__)(function)
        command = typer.main.get_command(app)
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
        usage = " ".join(["diptych", name, *(usage_of(p) for p in arguments), "[OPTIONS]"])
        text = re.sub(r"\n\s*\n", "\n\n", re.sub(r"\n +", "\n", (function.__doc__ or "").strip()))
        lines = [f"### `diptych {name}`", "", text, "", "```text", usage, "```", "", "| | | default |", "|---|---|---|"]
        for parameter in arguments:
            lines.append(f"| `{usage_of(parameter)}` | {cell(parameter.help)} | |")
        for parameter in options:
            flag = max(parameter.opts, key=len)
            value = "" if parameter.is_flag else f" {parameter.metavar or kind(parameter)}"
            needed = "required" if parameter.required else ""
            default = needed or ("" if parameter.is_flag or parameter.default is None else f"`{parameter.default}`")
            lines.append(f"| `{flag}{value}` | {cell(parameter.help)} | {default} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def usage_of(argument: Any) -> str:
    """An argument as the usage line shows it."""
    word = argument.metavar or argument.name.upper() + (" ..." if argument.nargs == -1 else "")
    return word if argument.required else f"[{word}]"


def kind(option: Any) -> str:
    """What an option takes: its choices, or its type in capitals."""
    choices = getattr(option.type, "choices", None)
    if choices:
        return "|".join(choices)
    names = {"integer": "N", "integer range": "N", "float": "X", "path": "PATH", "text": "TEXT"}
    return names.get(option.type.name, option.type.name.upper())


def cell(text: str | None) -> str:
    """Text that stays inside one cell of a table."""
    return re.sub(r"\s+", " ", text or "").replace("|", "\\|")


def put_commands(app: Any, document: str, source: list[str]) -> None:
    """Fill in the mark of docs/cli.md."""
    if COMMANDS_MARK in source[0]:
        source[0] = source[0].replace(COMMANDS_MARK, describe_commands())


def list_names(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings say `name: meaning`, a line each; the page shows them as a list."""
    shown: list[str] = []
    inside = False
    for line in lines:
        begins = re.match(r"(\w+(?:, \w+)*): (.*)", line)
        if begins and shown:
            if not inside and shown[-1]:
                shown.append("")
            names = ", ".join(f"``{word}``" for word in begins[1].split(", "))
            shown.append(f"* {names}: {begins[2]}")
            inside = True
        elif inside and line.strip():
            shown.append(f"  {line.strip()}")
        else:
            shown.append(line)
            inside = False
    lines[:] = shown


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", put_commands)
    app.connect("autodoc-process-docstring", list_names)
