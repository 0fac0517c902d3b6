"""When a run ends before its last epoch because nothing gets better."""

from diptych.training.checkpoints import Position
from diptych.training.recipe import TrainingConfig


def waited(position: Position) -> int:
    """Whole epochs since the best one."""
    return max(0, position.epoch - 1 - position.best_epoch)


def out_of_patience(training: TrainingConfig, position: Position) -> bool:
    """Whether so many epochs brought no better validation RSUM; looked at after an evaluation only."""
    if training.patience is None or position.step or position.epoch % training.evaluate_epochs:
        return False
    return position.epoch > 0 and waited(position) >= training.patience
