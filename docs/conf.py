import inspect
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo

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
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
smartquotes_action = "qe"  # quotes and ellipses; two hyphens stay what they are
autodoc_member_order = "bysource"
default_role = "code"
# Shapes such as (images, regions, d) are not cross-references.
nitpicky = False

# `diptych COMMAND --help` as Markdown: docs/cli.md holds this mark, and the build puts every command in its place.
COMMANDS_MARK = "<!-- commands -->"


def describe_commands() -> str:
    """Every command with its arguments and options, from the functions that the command line runs."""
    return "\n\n".join(describe(name) for name in COMMANDS if find_spec(f"diptych.cli.{name}") is not None)


def describe(name: str) -> str:
    """One command as Markdown: what it does, how it is called, and a table of what it takes."""
    function = import_module(f"diptych.cli.{name}").command
    hints = get_type_hints(function, include_extras=True)
    usage, rows = [f"diptych {name}"], []
    for parameter in inspect.signature(function).parameters.values():
        kind, info = get_args(hints[parameter.name])
        needed = parameter.default is inspect.Parameter.empty
        several = "list" in str(kind)
        if isinstance(info, ArgumentInfo):
            word = info.metavar or parameter.name.upper() + (" ..." if several else "")
            word = word if needed else f"[{word}]"
            usage.append(word)
            rows.append((word, info.help, ""))
        else:
            # Inside Annotated, typer takes the first flag for the default.
            names = [n for n in (info.default, *(info.param_decls or ())) if isinstance(n, str)]
            flag = names[0] if names else "--" + parameter.name.replace("_", "-")
            value = "" if kind is bool else f" {info.metavar or value_of(kind)}"
            if needed:
                usage.append(flag + value)
            default = "" if kind is bool or needed or parameter.default is None else f"`{parameter.default}`"
            rows.append((flag + value, info.help, "required" if needed else default))
    text = inspect.cleandoc(function.__doc__ or "")
    table = ["| | | default |", "|---|---|---|"]
    table += [f"| `{cell(word)}` | {cell(help)} | {default} |" for word, help, default in rows]
    return "\n".join([f"### `diptych {name}`", "", text, "", "```text", " ".join([*usage, "[OPTIONS]"]), "```", "", *table])


def value_of(kind: Any) -> str:
    """What an option takes: its choices, or a word for its type."""
    kinds = [k for k in (get_args(kind) or (kind,)) if k is not type(None)]
    if get_origin(kind) is Literal:
        return "|".join(kinds)
    return {int: "N", float: "X", Path: "PATH"}.get(kinds[0], "TEXT")


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
