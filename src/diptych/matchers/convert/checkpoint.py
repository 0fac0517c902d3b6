"""An authors' checkpoint as plain tensors and settings, read without running anything that is inside it."""

import hashlib
import re
import warnings
from argparse import Namespace
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.common.machine import torch_reason

PARTS = ("image", "text", "pair")
_PREFIXES = {"img_enc.": "image.", "txt_enc.": "text."}
_REFUSED = re.compile(r"GLOBAL (\S+) (?:was not an allowed|whose module)|unrecognized function (.+)")


class Ignored:
    """What numpy's number types become: they hold figures of the training, which are not needed."""

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, _: object) -> None: ...


# Names that a checkpoint may use. What is not a plain container is replaced by one, or by nothing.
_ALLOWED: list[Any] = [
    Namespace,
    OrderedDict,
    defaultdict,
    (OrderedDict, "easydict.EasyDict"),
    *((Ignored, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
    (Ignored, "numpy.dtype"),
    *((Ignored, f"numpy.dtypes.{kind}DType") for kind in ("Float64", "Float32", "Int64", "Int32")),
]


@dataclass(frozen=True)
class Checkpoint:
    """A file's tensors, named `image.…`, `text.…` and `pair.…`, and the settings that it was trained with.

    settings: the authors' `opt`; empty where the file has none
    checksum: SHA-256 of the file
    """

    path: Path
    checksum: str
    tensors: Mapping[str, Tensor]
    settings: Mapping[str, Any]

    def shape(self, name: str, dimensions: int) -> tuple[int, ...]:
        """The shape of a tensor, from which the configuration is deduced."""
        if name not in self.tensors:
            raise DiptychError(f"{shown(name)} is missing", where=self.path)
        shape = tuple(self.tensors[name].shape)
        if len(shape) != dimensions:
            raise DiptychError(f"{shown(name)} has shape {shape}; expected {dimensions} dimensions", where=self.path)
        return shape

    def starting(self, prefix: str) -> list[str]:
        """The names that start so."""
        return [name for name in self.tensors if name.startswith(prefix)]

    def count(self, before: str, after: str = "") -> int:
        """How many numbers k from 0 on have a name `before` k `after` …: layers, blocks, iterations."""
        k = 0
        while self.starting(f"{before}{k}{after}"):
            k += 1
        return k


def shown(name: str) -> str:
    """A tensor's name for people: the authors' name, and on which side it is."""
    part, _, rest = name.partition(".")
    return f"the tensor {rest!r} of the {part} side"


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file that `torch.save` wrote, new or old format; whatever is no tensor or plain value is refused."""
    if not path.is_file():
        raise DiptychError("no such file; expected an authors' checkpoint", where=path)
    content = _load(path)
    model, settings = content, {}
    if isinstance(content, Mapping) and any(key in content for key in ("model", "state_dict")):
        model = content["model"] if "model" in content else content["state_dict"]
        settings = _settings(content.get("opt"), path)
    with path.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    return Checkpoint(path, checksum, _tensors(model, path), settings)


def _load(path: Path) -> Any:
    if tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 6):
        raise DiptychError("reading others' checkpoints safely needs torch 2.6 or later", where=path)
    try:
        with torch.serialization.safe_globals(_ALLOWED), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other pickle protocols; what cannot be read is an error anyway
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken or hostile file makes torch raise all kinds
        refused = _REFUSED.search(str(error))
        if refused is not None:
            name = refused.group(1) or refused.group(2)
            raise DiptychError(
                f"holds an object of {name}, which is neither a tensor nor a setting; it was refused and "
                "nothing was run",
                where=path,
            ) from None
        raise DiptychError(f"not a checkpoint that can be read safely: {torch_reason(error)}", where=path) from None


def _settings(opt: Any, path: Path) -> dict[str, Any]:
    if opt is None:
        return {}
    if isinstance(opt, Namespace):
        return vars(opt)
    if isinstance(opt, Mapping):
        return {str(key): value for key, value in opt.items()}
    raise DiptychError(f"opt: expected a namespace or a dictionary, got {type(opt).__name__}", where=path)


def _tensors(model: Any, path: Path) -> dict[str, Tensor]:
    """[image, text(, pair)] or one dictionary with `img_enc.…` and `txt_enc.…`, as one dictionary."""
    if isinstance(model, list | tuple) and 2 <= len(model) <= len(PARTS):
        pieces = list(zip((f"{part}." for part in PARTS), model, strict=False))
    elif isinstance(model, Mapping):
        pieces = [("", model)]
    else:
        raise DiptychError(f"model: expected two or three state dictionaries, or one; got {_kind(model)}", where=path)
    tensors: dict[str, Tensor] = {}
    for prefix, state in pieces:
        if not isinstance(state, Mapping):
            raise DiptychError(f"model: expected state dictionaries, got {_kind(state)}", where=path)
        for key, tensor in state.items():
            name = _name(str(key), prefix)
            if not isinstance(tensor, Tensor):
                raise DiptychError(f"model: {key!r} is {_kind(tensor)}; expected a tensor", where=path)
            if name is None:
                raise DiptychError(
                    f"model: {key!r} belongs to no side; expected 'img_enc.…' or 'txt_enc.…'", where=path
                )
            if name in tensors:
                raise DiptychError(f"model: {shown(name)} is there twice", where=path)
            _check_numbers(tensor, name, path)
            tensors[name] = tensor
    return tensors


def _name(key: str, prefix: str) -> str | None:
    """Without `module.` (DataParallel) in front, before and after the side's name."""
    key = key.removeprefix("module.")
    if prefix:
        return prefix + key
    for theirs, ours in _PREFIXES.items():
        if key.startswith(theirs):
            return ours + key.removeprefix(theirs).removeprefix("module.")
    return None


def _kind(value: Any) -> str:
    return f"{len(value)} of them" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


def _check_numbers(tensor: Tensor, name: str, path: Path) -> None:
    """Refuse a weight that would turn every score into nothing."""
    if tensor.is_complex():
        raise DiptychError(f"{path}: {shown(name)} holds complex numbers; expected real ones")
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise DiptychError(f"{path}: {shown(name)} holds a number that is not finite")
