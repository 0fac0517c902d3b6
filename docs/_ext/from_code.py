"""What pages take from the code at each build: commands with their options, matchers with theirs, recipes, docstrings.

A page holds a mark, `<!-- commands -->`, `<!-- matchers -->` or `<!-- recipes -->`, and the build puts tables there.
"""

import inspect
import re
from dataclasses import MISSING, fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo

from diptych.cli.main import COMMANDS, function_of, module_of
from diptych.common.config import read_toml
from diptych.matchers.catalog import MATCHERS, matcher_title

RECIPES = Path(__file__).parents[2] / "recipes"
SIDES = ("image", "text")  # described once, for all matchers


def describe_commands() -> str:
    """Every command with its arguments and options, from the functions that the command line runs."""
    return "\n\n".join(describe(name) for name in COMMANDS if find_spec(module_of(name)) is not None)


def describe(name: str) -> str:
    """One command as Markdown: what it does, how it is called, and a table of what it takes."""
    function = function_of(name)
    hints = get_type_hints(function, include_extras=True)
    usage, rows = [f"diptych {name}"], []
    for parameter in inspect.signature(function).parameters.values():
        if get_origin(hints[parameter.name]) is not Annotated:
            continue  # the parser's own state
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
            if kind is bool and parameter.default is True and not names:
                flag = f"--no-{flag[2:]}"  # what is on by itself can only be turned off
            value = "" if kind is bool else f" {info.metavar or value_of(kind)}"
            if needed:
                usage.append(flag + value)
            default = "" if kind is bool or needed or parameter.default is None else f"`{parameter.default}`"
            rows.append((flag + value, info.help, "required" if needed else default))
    text = inspect.cleandoc(function.__doc__ or "")
    table = ["| | | default |", "|---|---|---|"]
    table += [f"| `{cell(word)}` | {cell(help)} | {default} |" for word, help, default in rows]
    return "\n".join(
        [f"### `diptych {name}`", "", text, "", "```text", " ".join([*usage, "[OPTIONS]"]), "```", "", *table]
    )


def value_of(kind: Any) -> str:
    """What an option takes: its choices, or a word for its type."""
    kinds = [k for k in (get_args(kind) or (kind,)) if k is not type(None)]
    if get_origin(kind) is Literal:
        return "|".join(kinds)
    return {int: "N", float: "X", Path: "PATH"}.get(kinds[0], "TEXT")


def cell(text: str | None) -> str:
    """Text that stays inside one cell of a table."""
    return re.sub(r"\s+", " ", text or "").replace("|", "\\|")


def describe_matchers() -> str:
    """Every matcher with its options; a table among them has one of its own behind it."""
    parts = []
    for kind, (config, _) in MATCHERS.items():
        parts += [f'### `kind = "{kind}"`: {matcher_title(kind)}', describe_fields(config)]
        for name, hint in get_type_hints(config).items():
            if is_dataclass(hint) and name not in SIDES:
                parts += [f"`{name}` is a table of its own:", describe_fields(hint)]
    return "\n\n".join(parts)


def describe_recipes(folder: Path = RECIPES) -> str:
    """Every recipe: the sentence that it begins with, and its variants."""
    lines = ["| recipe | | variants |", "|---|---|---|"]
    for path in sorted(folder.glob("*.toml")):
        begins = re.match(r"(?:#.*\n)*", path.read_text(encoding="utf-8"))
        words = re.sub(r"\s*\n?#\s*", " ", begins[0] if begins else "").strip()
        variants = ", ".join(f"`{name}`" for name in read_toml(path).get("variants", {}))
        lines.append(f"| `{path.stem}` | {cell(words.split('. ')[0].rstrip('.'))} | {variants} |")
    return "\n".join(lines)


def describe_fields(config: Any) -> str:
    """A configuration's fields as a table: what each takes, its default, and what its class's docstring says of it."""
    hints, meanings = get_type_hints(config), read_meanings(config)
    lines = ["| key | takes | default | |", "|---|---|---|---|"]
    for field in fields(config):
        if field.name in ("kind", *SIDES):
            continue
        default = "" if field.default is MISSING else shown(field.default)
        takes = takes_of(hints[field.name])
        lines.append(f"| `{field.name}` | {takes} | {default} | {cell(meanings.get(field.name))} |")
    return "\n".join(lines)


def shown(value: Any) -> str:
    """A default as a recipe would write it, without quotes."""
    return "none" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def read_meanings(config: Any) -> dict[str, str]:
    """What a docstring says of each field: lines `name: meaning` or `name, name: meaning`, with what follows them."""
    names = [field.name for field in fields(config)]
    one = "|".join(names)
    begins = re.compile(rf"(?:^|; )((?:{one})(?:, (?:{one}))*): ")
    paragraphs = inspect.cleandoc(config.__doc__ or "").split("\n\n")[1:]
    entries: list[str] = []
    for line in "\n".join(paragraphs).splitlines():
        if begins.match(line):
            entries.append(line)
        elif entries:
            entries[-1] += " " + line.strip()
    meanings: dict[str, str] = {}
    for entry in entries:
        starts = list(begins.finditer(entry))
        for match, end in zip(starts, [*(m.start() for m in starts[1:]), len(entry)], strict=True):
            meanings |= dict.fromkeys(match[1].split(", "), entry[match.end() : end].strip())
    return meanings


def takes_of(hint: Any) -> str:
    """What a field takes: its choices, a type's name, or `table` for a configuration of its own."""
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint))
    kinds = [k for k in (get_args(hint) or (hint,)) if k is not type(None)]
    names = {int: "whole number", float: "number", bool: "true, false", str: "text"}
    return " or ".join(dict.fromkeys(names.get(k, "table") for k in kinds))


MARKS = {
    "<!-- commands -->": describe_commands,
    "<!-- matchers -->": describe_matchers,
    "<!-- recipes -->": describe_recipes,
}


def put_marks(app: Any, document: str, source: list[str]) -> None:
    """Fill in the marks of a page."""
    for mark, tables in MARKS.items():
        if mark in source[0]:
            source[0] = source[0].replace(mark, tables())


def list_names(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings say `name: meaning`, a line each; the page shows them as a list."""
    listed: list[str] = []
    inside = False
    for line in lines:
        begins = re.match(r"(\w+(?:, \w+)*): (.*)", line)
        if begins and listed:
            if not inside and listed[-1]:
                listed.append("")
            names = ", ".join(f"``{word}``" for word in begins[1].split(", "))
            listed.append(f"* {names}: {begins[2]}")
            inside = True
        elif inside and line.strip():
            listed.append(f"  {line.strip()}")
        else:
            listed.append(line)
            inside = False
    lines[:] = listed


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", put_marks)
    app.connect("autodoc-process-docstring", list_names)
