"""Strict configuration: plain dictionaries to trees of dataclasses and back.

A key that no dataclass has is an error that names its nearest valid neighbour, and so is a value of the wrong type.
Unions of dataclasses are told apart by their `kind` field.
"""

import dataclasses
import json
import tomllib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from diptych.common.errors import DiptychError, nearest
from diptych.common.files import read_text

T = TypeVar("T")
Tree = dict[str, Any]


def parse(cls: type[T], data: Mapping[str, Any], where: str) -> T:
    """Build dataclass `cls` from a dictionary; `where` names the file (and table) in errors."""
    if not isinstance(data, Mapping):
        raise DiptychError(f"expected a table, got {data!r}", where=where)
    hints = get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    values: Tree = {}
    for key, value in data.items():
        name = str(key).replace("-", "_")
        if name not in fields:
            raise DiptychError(f"unknown key {key!r}; {nearest(name, list(fields))}", where=where)
        values[name] = _convert(hints[name], value, f"{where}: {key}")
    missing = [
        n
        for n, f in fields.items()
        if n not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise DiptychError(f"missing key {missing[0]!r}", where=where)
    try:
        return cls(**values)
    except ValueError as error:
        raise DiptychError(str(error), where=where) from None


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(args, value, where)
    if origin is Literal:
        if value not in args:
            raise DiptychError(f"{value!r} is not valid; {nearest(str(value), [str(a) for a in args])}", where=where)
        return value
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise DiptychError(f"expected a table, got {value!r}", where=where)
        return parse(cast(type, hint), value, where)
    if origin in (list, tuple):
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise DiptychError(f"expected a list, got {value!r}", where=where)
        inner = args[0] if args else Any
        return origin(_convert(inner, v, f"{where}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise DiptychError(f"expected a table, got {value!r}", where=where)
        return {str(k): _convert(args[1], v, f"{where}.{k}") for k, v in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise DiptychError(f"expected {hint.__name__}, got {value!r}", where=where)
    return value


def _convert_union(args: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in args:
        return None
    choices = [a for a in args if a is not type(None)]
    if len(choices) == 1:
        return _convert(choices[0], value, where)
    tagged = {_kind_of(c): c for c in choices if dataclasses.is_dataclass(c)}
    if tagged and isinstance(value, Mapping):
        kind = value.get("kind")
        if kind is None:
            raise DiptychError(
                f"missing key 'kind'; expected one of {', '.join(map(repr, sorted(tagged)))}", where=where
            )
        if not isinstance(kind, str) or kind not in tagged:
            raise DiptychError(f"kind {kind!r} is not valid; {nearest(str(kind), sorted(tagged))}", where=where)
        return parse(cast(type, tagged[kind]), value, where)
    for choice in choices:
        try:
            return _convert(choice, value, where)
        except DiptychError:
            continue
    raise DiptychError(
        f"{value!r} fits none of {', '.join(getattr(c, '__name__', str(c)) for c in choices)}", where=where
    )


def _kind_of(cls: Any) -> str:
    return next(str(f.default) for f in dataclasses.fields(cls) if f.name == "kind")


def to_tree(config: Any) -> Tree:
    """A dataclass tree as plain dictionaries, lists and scalars, ready for JSON."""
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        raise TypeError(f"{config!r} is not a dataclass instance")
    tree: Tree = json.loads(json.dumps(dataclasses.asdict(config)))
    return tree


def read_toml(path: Path) -> Tree:
    """A TOML file as a dictionary; an error names the file and line."""
    if not path.exists():
        raise DiptychError("no such file; expected a TOML recipe", where=path)
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise DiptychError(f"not valid TOML: {error}", where=path) from None
    except (RecursionError, ValueError):  # as in JSON
        raise DiptychError("not valid TOML: nested too deeply, or a number with too many digits", where=path) from None


def read_json(path: Path) -> Any:
    """A JSON file's content; an error names the file, line and column."""
    try:
        return parse_json(read_text(path))
    except json.JSONDecodeError as error:
        raise DiptychError(
            f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}", where=path
        ) from None


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; json.JSONDecodeError for what cannot be one, however it was made to be so."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", "", 0) from None
    except ValueError:  # Python does not read numbers of thousands of digits
        raise json.JSONDecodeError("a number with too many digits", "", 0) from None


def merge(base: Tree, changes: Mapping[str, Any]) -> Tree:
    """`base` with `changes` laid over it, table by table.

    A table that names another `kind` replaces the old one, and an empty table clears it.
    """
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        if (
            isinstance(value, Mapping)
            and value
            and isinstance(old, Mapping)
            and value.get("kind", old.get("kind")) == old.get("kind")
        ):
            result[key] = merge(dict(old), value)
        else:
            result[key] = value
    return result


def override(base: Tree, assignments: Sequence[str]) -> Tree:
    """Lay `key.sub=value` assignments over a tree; a value is read as TOML, or as a string where it is not TOML."""
    for assignment in assignments:
        key, sign, text = assignment.partition("=")
        if not sign or not key.strip():
            raise DiptychError(f"{assignment!r}: expected key=value")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):  # no TOML, as most words are none
            value = text
        change: Any = value
        for part in reversed(key.strip().split(".")):
            change = {part: change}
        base = merge(base, change)
    return base
