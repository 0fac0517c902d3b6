"""Train the toy recipe in a process of its own: `python -m tests.training.run_toy RUN [die-at-step]`."""

import os
import signal
import sys
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
    run, die_at = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None
    step = loop.Trainer._step

    def deadly(self: loop.Trainer, *arguments: object) -> torch.Tensor:
        if self.position.total == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *arguments)  # type: ignore[arg-type]

    loop.Trainer._step = deadly  # type: ignore[method-assign]
    loop.train(RECIPE, run, loop.Device("cpu"), toy.splits())


if __name__ == "__main__":
    main()
