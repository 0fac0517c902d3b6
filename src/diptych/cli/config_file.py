"""A file of what one always types: defaults of options, a table for each command, read strictly.

What the command line and the environment say goes before the file, and a command's own table before [common].
"""

import inspect
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from diptych.common.config import parse, read_toml
from diptych.common.errors import DiptychError, nearest
from diptych.common.user_folders import config_folder

VARIABLE = "DIPTYCH_CONFIG"
# Commands that have a table, and options that [common] has for all of them, also for those without a table.
TABLES = ("index", "search", "list", "info", "serve")
COMMON = ("index", "device")
# What is done once and not always, and what is secret.
NEVER = frozenset({"config", "import", "export", "check", "image", "delete", "retry", "watch", "token"})


@dataclass(frozen=True)
class Setting:
    """An option that the file can set.

    key: its name in the file; parameter: its name in the command's function
    takes: the type that the file must give; help: what the command's help says of it; default: what it is without
    low, high: bounds of a number, or None
    """

    key: str
    parameter: str
    takes: Any
    help: str
    default: Any
    low: float | None
    high: float | None


def default_file() -> Path:
    """The file that is read where none is named."""
    return config_folder() / "config.toml"


def file_in_use(named: Path | None) -> Path | None:
    """The file that counts: the one that is named, which must be there, or the user's own where there is one."""
    if named is not None:
        if not named.expanduser().exists():
            raise DiptychError("no such file; expected a TOML file of settings", where=named)
        return named.expanduser()
    return default_file() if default_file().is_file() else None


def settings_of(function: Callable[..., None]) -> list[Setting]:
    """The options of a command that the file can set."""
    hints = get_type_hints(function, include_extras=True)
    settings = []
    for parameter in inspect.signature(function).parameters.values():
        if get_origin(hints[parameter.name]) is not Annotated:
            continue
        kind, info = get_args(hints[parameter.name])[:2]
        if isinstance(info, OptionInfo):
            key = flag_of(parameter.name, info).removeprefix("--")
            if key not in NEVER:
                takes, low, high = _as_written(kind), info.min, info.max
                settings.append(Setting(key, parameter.name, takes, info.help or "", parameter.default, low, high))
    return settings


def flag_of(name: str, info: OptionInfo) -> str:
    """The long flag of an option."""
    # Inside Annotated, typer takes the first flag for the default.
    flags = [flag for flag in (info.default, *(info.param_decls or ())) if isinstance(flag, str)]
    return next((flag.partition("/")[0] for flag in flags if flag.startswith("--")), "--" + name.replace("_", "-"))


def read_tables(path: Path) -> dict[str, dict[str, Any]]:
    """The tables of a file, by name; another table, or anything outside of one, is an error."""
    tables = read_toml(path)
    for name, table in tables.items():
        if name not in (*TABLES, "common"):
            raise DiptychError(f"unknown table {name!r}; {nearest(name, [*TABLES, 'common'])}", where=path)
        if not isinstance(table, dict):
            raise DiptychError(f"{name}: expected a table, [{name}], got {table!r}", where=path)
    return tables


def defaults_from(path: Path, command: str, function: Callable[..., None]) -> dict[str, Any]:
    """What a file says of a command's options, by the name of the function's parameter."""
    tables = read_tables(path)
    own = {setting.key: setting for setting in settings_of(function)}
    common = [setting for key, setting in own.items() if key in COMMON]
    unknown = next((key for key in tables.get("common", {}) if key not in COMMON), None)
    if unknown is not None:
        raise DiptychError(f"unknown key {unknown!r}; {nearest(unknown, list(COMMON))}", where=f"{path}: [common]")
    shared = {key: value for key, value in tables.get("common", {}).items() if key in own}
    given = _checked(shared, common, f"{path}: [common]")
    return given | _checked(tables.get(command, {}), list(own.values()), f"{path}: [{command}]")


def use_config(ctx: typer.Context, named: Path | None) -> Path | None:
    """Let the file's values be the defaults of the command that is about to run."""
    path = file_in_use(named)
    if path is not None and ctx.command.callback is not None:
        function = inspect.unwrap(ctx.command.callback)
        ctx.default_map = {**(ctx.default_map or {}), **defaults_from(path, str(ctx.info_name), function)}
    return path


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", envvar=VARIABLE, is_eager=True, callback=use_config, help="A file of settings; your own by default."
    ),
]


def _checked(table: dict[str, Any], settings: list[Setting], where: str) -> dict[str, Any]:
    """A table's values by parameter; a key that is not there, or a value that does not fit, is an error."""
    names = {setting.key.replace("-", "_"): setting for setting in settings}
    fields = [(name, setting.takes | None, None) for name, setting in names.items()]
    unknown = next((key for key in table if key.replace("-", "_") not in names), None)
    if unknown is not None:
        raise DiptychError(f"unknown key {unknown!r}; {nearest(unknown, [s.key for s in settings])}", where=where)
    values = asdict(parse(make_dataclass("Table", fields), table, where))
    given = {}
    for key in table:
        name = key.replace("-", "_")
        setting, value = names[name], values[name]
        outside = (setting.low is not None and value < setting.low) or (
            setting.high is not None and value > setting.high
        )
        if outside:
            most = "" if setting.high is None else f" and at most {setting.high:g}"
            raise DiptychError(f"expected at least {setting.low:g}{most}, got {value!r}", where=f"{where}: {key}")
        given[setting.parameter] = os.path.expanduser(value) if isinstance(value, str) else value
    return given


def _as_written(kind: Any) -> Any:
    """An option's type as TOML has it: paths are text."""
    kinds = [k for k in (get_args(kind) if type(None) in get_args(kind) else (kind,)) if k is not type(None)]
    kind = kinds[0]
    if kind is Path:
        return str
    if get_origin(kind) is list:
        return list[_as_written(get_args(kind)[0])]  # type: ignore[misc]
    return kind
