"""Train the toy recipe in a process of its own: `python -m tests.training.run_toy RUN [die-at-step | accumulate]`."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch

from diptych.training import loop
from diptych.training.optimisation import ScheduleConfig
from tests.training import toy

RECIPE = toy.recipe(
    epochs=3,
    checkpoint_steps=2,
    average=0.9,
    clip=1.0,
    schedule=ScheduleConfig("cosine"),
)


def main() -> None:
    torch.set_num_threads(1)
    run, more = Path(sys.argv[1]), sys.argv[2:]
    recipe, die_at = RECIPE, None
    if more == ["accumulate"]:
        recipe = replace(RECIPE, training=replace(RECIPE.training, accumulate=3))
    elif more:
        die_at = int(more[0])
    step = loop.Trainer._step

    def deadly(self: loop.Trainer, *arguments: object) -> torch.Tensor:
        if self.position.total == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *arguments)  # type: ignore[arg-type]

    loop.Trainer._step = deadly  # type: ignore[method-assign]
    loop.train(recipe, run, loop.Device("cpu"), toy.splits())


if __name__ == "__main__":
    main()
