"""Where a run's numbers go besides metrics.jsonl: TensorBoard's files, and Weights & Biases."""

import hashlib
from pathlib import Path
from typing import Any, Protocol

from diptych.common.config import to_tree
from diptych.common.errors import DiptychError
from diptych.training.recipe import Recipe


class Tracker(Protocol):
    """Takes numbers by name, each with the step that it is of."""

    def log(self, numbers: dict[str, float], step: int) -> None:
        """Take in what is known after a step."""

    def close(self) -> None:
        """No more is to come."""


class TensorBoardTracker:
    """Event files in RUN/tensorboard; those behind the last checkpoint are dropped when a run goes on."""

    def __init__(self, run: Path, total: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(run / "tensorboard"), purge_step=total)

    def log(self, numbers: dict[str, float], step: int) -> None:
        """One point a number."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is waiting."""
        self._writer.close()


class WandbTracker:
    """A run of Weights & Biases through Lightning's logger, with the recipe as its configuration.

    Its id follows from the folder and the recipe, so that a run that goes on here goes on there. Whether it is sent,
    and whereto, is wandb's own to be told: `WANDB_MODE=offline` keeps it in RUN/wandb until `wandb sync`.
    """

    def __init__(self, recipe: Recipe, run: Path, project: str) -> None:
        try:
            from lightning.pytorch.loggers import WandbLogger

            self._logger: Any = WandbLogger(
                project=project,
                name=run.name,
                id=run_id(recipe, run),
                save_dir=str(run),
                resume="allow",
                config=to_tree(recipe),
            )
            _ = self._logger.experiment  # begins here, where it can fail, and not at the first step
        except ImportError as error:
            raise DiptychError(f"training.wandb needs Weights & Biases ({error}); install diptych[wandb]") from None
        except Exception as error:
            said = str(error).strip().partition("\n")[0] or type(error).__name__
            raise DiptychError(
                f"training.wandb: Weights & Biases did not begin: {said}; `wandb login`, or WANDB_MODE=offline"
            ) from None

    def log(self, numbers: dict[str, float], step: int) -> None:
        """One row; `trainer/global_step` is the step."""
        self._logger.log_metrics(numbers, step)

    def close(self) -> None:
        """Hand over what is waiting."""
        self._logger.finalize("success")
        self._logger.experiment.finish()


def run_id(recipe: Recipe, run: Path) -> str:
    """The same for the same run, on this machine."""
    told = f"{run.resolve()} {recipe.name} {recipe.variant} {recipe.training.seed}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def build_trackers(recipe: Recipe, run: Path, total: int) -> list[Tracker]:
    """Those that a recipe asks for; total: steps done before."""
    trackers: list[Tracker] = []
    if recipe.training.tensorboard:
        trackers.append(TensorBoardTracker(run, total))
    if recipe.training.wandb is not None:
        trackers.append(WandbTracker(recipe, run, recipe.training.wandb))
    return trackers
