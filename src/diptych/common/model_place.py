"""The one place that finds a model: a user's word for it to what is loaded."""

import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from diptych.common.errors import DiptychError

# What comes with Diptych, where an installation carries it.
SHIPPED = ("default",)


@dataclass(frozen=True)
class ModelPlace:
    """Where a model is.

    name: what means the same anywhere: a name that ships, an absolute folder, or a name of the hub
    folder: the folder that holds its config.json; None where the hub has it
    """

    name: str
    folder: Path | None


def find_model(word: str | Path) -> ModelPlace:
    """What a word stands for: a model that ships, a run (its best model), a model's folder, or a name of the hub.

    A name that ships comes before a folder of that name, which is `./default`. Whether the hub has a model of such a
    name shows when it is loaded.
    """
    text = str(word)
    folder = model_folder(text)
    if folder is not None:
        return ModelPlace(text if shipped_folder(text) else os.path.abspath(folder), folder)
    if text in SHIPPED:
        raise DiptychError("this installation of Diptych does not carry that model; name another", where=text)
    if Path(text).expanduser().is_dir():
        raise DiptychError("expected a run with best/config.json, or a model folder with config.json", where=text)
    if text.startswith((".", "/", "~")) or text.count("/") != 1:
        raise DiptychError(
            "no such folder or model; expected `default`, a run, a folder that save_pretrained wrote, or the name of a "
            "matcher, a CLIP or a SigLIP model on the Hugging Face hub",
            where=text,
        )
    return ModelPlace(text, None)


def model_folder(word: str) -> Path | None:
    """The folder of this machine that a word stands for, with a config.json in it; None where there is none."""
    shipped = shipped_folder(word)
    if shipped is not None or word in SHIPPED:
        return shipped
    folder = Path(word).expanduser()
    return next((f for f in (folder / "best", folder) if (f / "config.json").is_file()), None)


def shipped_folder(name: str) -> Path | None:
    """The folder of a model that comes with Diptych (`default`), or None for any other name."""
    folder = Path(str(files("diptych"))) / "shipped" / name
    return folder if name.replace("-", "").isalnum() and (folder / "config.json").is_file() else None


def canonical_name(word: str | Path) -> str:
    """A model's name that means the same anywhere, also of one that is not there any more; never an error."""
    try:
        return find_model(word).name
    except DiptychError:
        text, folder = str(word), Path(word).expanduser()
        return text if text in SHIPPED or not folder.is_dir() else os.path.abspath(folder)
