"""The model that a command is told to use."""

from diptych.common.errors import DiptychError
from diptych.evaluation.runs import model_folder
from diptych.matchers.base import Matcher


def load_model(run: str, device: str | None) -> Matcher:
    """A run's best model, on a device; a GPU where there is one."""
    import torch

    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    matcher = Matcher.from_pretrained(model_folder(run))
    try:
        return matcher.to(chosen)
    except (RuntimeError, AssertionError) as error:
        raise DiptychError(f"--device: {chosen!r} cannot be used: {str(error).splitlines()[0]}") from None
