"""The model that a command is told to use."""

from diptych.common.device import pick_device
from diptych.evaluation.runs import model_folder
from diptych.matchers.base import Matcher


def load_model(run: str, device: str) -> Matcher:
    """A run's best model, on a device; a GPU where there is one."""
    chosen = pick_device(device)
    return Matcher.from_pretrained(model_folder(run)).to(chosen)
