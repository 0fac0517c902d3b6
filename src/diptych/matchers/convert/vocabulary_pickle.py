"""The word list of a pickled `Vocabulary`, by reading the pickle's opcodes; nothing is imported, called or run."""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diptych.common.errors import DiptychError
from diptych.data.vocabulary import Vocabulary

# What makes a plain object of a class in the oldest protocols.
_MAKERS = {("copy_reg", "_reconstructor"), ("copyreg", "_reconstructor"), ("copyreg", "__newobj__")}
_BASES = {("__builtin__", "object"), ("builtins", "object")}
_VALUES = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES",
}  # fmt: skip
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_DICT": dict, "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}  # fmt: skip


class NotUnderstoodError(Exception):
    """An opcode that a vocabulary has no need of."""


@dataclass(frozen=True)
class Name:
    """A class or function that the pickle names. It is never looked up."""

    module: str
    name: str


@dataclass
class Plain:
    """What stands for an object of class Vocabulary: its attributes alone."""

    state: dict[Any, Any] = field(default_factory=dict)


class _Mark:
    """The pickle machine's mark."""


def read_vocabulary(path: Path) -> Vocabulary:
    """The field's JSON, or a pickle of a class named Vocabulary or of a plain dictionary."""
    if path.suffix.lower() == ".json":
        return Vocabulary.load(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DiptychError(f"cannot be read: {error.strerror}", where=path) from None
    try:
        content = Reader().read(data)
    except (NotUnderstoodError, ValueError, IndexError, KeyError, TypeError, UnicodeError) as error:
        raise DiptychError(
            f"not a vocabulary that can be read without running it ({error}); expected a pickle of a class "
            'named Vocabulary, or give the vocabulary as JSON: {"word2idx": {word: number}}',
            where=path,
        ) from None
    try:
        return Vocabulary(_words(content, path))
    except DiptychError as error:
        raise DiptychError(error.within(path), where=path) from None


def _words(content: Any, path: Path) -> list[str]:
    tree = content.state if isinstance(content, Plain) else content
    if not isinstance(tree, dict):
        raise DiptychError(f"expected a Vocabulary or a dictionary, got a {type(tree).__name__}", where=path)
    table = tree.get("word2idx", tree.get("idx2word", tree))
    if isinstance(table, dict) and "word2idx" not in tree and "idx2word" in tree:
        table = {word: number for number, word in table.items()}
    if isinstance(table, list):
        table = {word: number for number, word in enumerate(table)}
    if not isinstance(table, dict) or not table:
        raise DiptychError("word2idx: expected a dictionary of words and their numbers", where=path)
    by_number = {number: word for word, number in table.items() if type(number) is int and isinstance(word, str)}
    if sorted(by_number) != list(range(len(table))):
        raise DiptychError(f"word2idx: expected words with the numbers 0 to {len(table) - 1}, each once", where=path)
    return [by_number[i] for i in range(len(table))]


def _text(opcode: str, argument: Any) -> Any:
    """A value; the byte strings of Python 2, which pickletools takes for Latin-1, are UTF-8."""
    if opcode in ("BINSTRING", "SHORT_BINSTRING"):
        argument = argument.encode("latin-1")
    return argument.decode("utf-8") if isinstance(argument, bytes) else argument


class Reader:
    """The pickle machine, for containers, strings, numbers and objects of a class named Vocabulary alone."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def read(self, data: bytes) -> Any:
        """What the pickle describes."""
        for opcode, argument, _ in pickletools.genops(data):
            name = opcode.name
            if name == "STOP":
                return self.stack.pop()
            if name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name]())
            elif name in _VALUES:
                self.stack.append(_text(name, argument))
            elif name not in ("PROTO", "FRAME"):
                step = getattr(self, f"_{name.lower()}", None)
                if step is None:
                    raise NotUnderstoodError(f"the opcode {name}")
                step(argument)
        raise NotUnderstoodError("no end")

    # Containers.

    def _mark(self, _: Any) -> None:
        self.stack.append(_Mark())

    def _items(self) -> list[Any]:
        last = max(i for i, value in enumerate(self.stack) if isinstance(value, _Mark))
        items = self.stack[last + 1 :]
        del self.stack[last:]
        return items

    def _dict(self, _: Any) -> None:
        items = self._items()
        self.stack.append(dict(zip(items[::2], items[1::2], strict=True)))

    def _list(self, _: Any) -> None:
        self.stack.append(self._items())

    def _tuple(self, _: Any) -> None:
        self.stack.append(tuple(self._items()))

    def _tuple1(self, _: Any) -> None:
        self.stack[-1:] = [tuple(self.stack[-1:])]

    def _tuple2(self, _: Any) -> None:
        self.stack[-2:] = [tuple(self.stack[-2:])]

    def _tuple3(self, _: Any) -> None:
        self.stack[-3:] = [tuple(self.stack[-3:])]

    def _setitem(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._container(dict)[key] = value

    def _setitems(self, _: Any) -> None:
        items = self._items()
        self._container(dict).update(zip(items[::2], items[1::2], strict=True))

    def _append(self, _: Any) -> None:
        value = self.stack.pop()
        self._container(list).append(value)

    def _appends(self, _: Any) -> None:
        items = self._items()
        self._container(list).extend(items)

    def _container(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise NotUnderstoodError(f"items set in a {type(self.stack[-1]).__name__}")
        return self.stack[-1]

    # The memo.

    def _put(self, key: Any) -> None:
        self.memo[int(key)] = self.stack[-1]

    _binput = _long_binput = _put

    def _memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _get(self, key: Any) -> None:
        self.stack.append(self.memo[int(key)])

    _binget = _long_binget = _get

    # Objects: a name is kept as two words, an object as its attributes.

    def _global(self, argument: str) -> None:
        module, name = argument.split(" ", 1)
        self.stack.append(self._named(module, name))

    def _stack_global(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self._named(module, name))

    def _named(self, module: str, name: str) -> Name:
        if name != "Vocabulary" and (module, name) not in _MAKERS | _BASES:
            raise NotUnderstoodError(f"it names {module}.{name}")
        return Name(module, name)

    def _newobj(self, _: Any) -> None:
        arguments, which = self.stack.pop(), self.stack.pop()
        self._make(which, arguments)

    def _inst(self, argument: str) -> None:
        module, name = argument.split(" ", 1)
        self._make(self._named(module, name), tuple(self._items()))

    def _obj(self, _: Any) -> None:
        which, *arguments = self._items()
        self._make(which, tuple(arguments))

    def _reduce(self, _: Any) -> None:
        arguments, which = self.stack.pop(), self.stack.pop()
        if isinstance(which, Name) and (which.module, which.name) in _MAKERS:
            which, *rest = arguments
            bases = {(base.module, base.name) for base in rest if isinstance(base, Name)}
            arguments = () if bases <= _BASES and not any(rest[1:]) else tuple(rest)
        self._make(which, arguments)

    def _make(self, which: Any, arguments: tuple[Any, ...]) -> None:
        if not isinstance(which, Name) or which.name != "Vocabulary" or arguments:
            raise NotUnderstoodError(f"it calls {which}")
        self.stack.append(Plain())

    def _build(self, _: Any) -> None:
        state, owner = self.stack.pop(), self.stack[-1]
        if not isinstance(owner, Plain) or not isinstance(state, dict):
            raise NotUnderstoodError(f"it sets the state of a {type(owner).__name__}")
        owner.state.update(state)
