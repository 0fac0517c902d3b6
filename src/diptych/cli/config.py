"""`diptych config`."""

import json
import textwrap
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer

from diptych.cli.config_file import COMMON, TABLES, VARIABLE, defaults_from, file_in_use, read_tables, settings_of
from diptych.cli.config_file import default_file as own_file
from diptych.cli.main import function_of


def command(
    path: Annotated[bool, typer.Option("--path", help="Print only where the file is, or would be.")] = False,
    example: Annotated[
        bool, typer.Option("--example", help="Print every key that there is, each behind a # that turns it off.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option("--config", envvar=VARIABLE, help="Another file; your own by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the file of what you always type, and that it is as it should be; or an example of one."""
    if example:
        print(_example(), end="")
        return
    if path:
        print(config or own_file())
        return
    used = file_in_use(config)
    tables: dict[str, Any] = {} if used is None else read_tables(used)
    for name in TABLES:
        if used is not None:
            defaults_from(used, name, function_of(name))
    if as_json:
        print(json.dumps({"file": str(used or own_file()), "there": used is not None, "settings": tables}))
    elif used is None:
        print(f"{own_file()}: not there; `diptych config --example` shows what it can hold")
    else:
        print(used)
        for name, table in tables.items():
            for key, value in table.items():
                print(f"[{name}] {key} = {_written(value)}")


def _example() -> str:
    lines = ["# What I always type. The command line goes before it, and a command's own table before [common].", ""]
    functions = {name: function_of(name) for name in TABLES}
    for name in ("common", *TABLES):
        lines.append(f"[{name}]")
        settings = settings_of(functions["search" if name == "common" else name])
        for setting in settings:
            if (setting.key in COMMON) == (name == "common"):
                lines += [f"# {line}" for line in textwrap.wrap(setting.help, 110)]
                lines.append(f"# {setting.key} = {_written(_sample(setting.takes, setting.default))}")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _sample(takes: Any, default: Any) -> Any:
    """A value that a key may have."""
    if default not in (None, False):
        return default
    if get_origin(takes) is list:
        return []
    return {bool: True, int: 1, float: 0.5}.get(takes, get_args(takes)[0] if get_args(takes) else "")


def _written(value: Any) -> str:
    """A value as TOML has it: JSON's text, numbers and lists are TOML's too."""
    return json.dumps(value, ensure_ascii=False)
