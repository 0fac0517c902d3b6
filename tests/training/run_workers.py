"""Train the toy with two data workers: `python -m tests.training.run_workers RUN`.

Each step is told on stdout from the second on, once the batches of the workers have come.
"""

import sys
from pathlib import Path

import torch

from diptych.training import loop
from tests.training import toy


def main() -> None:
    torch.set_num_threads(1)
    step = loop.Trainer._step

    def slow(self: loop.Trainer, *arguments: object) -> object:
        value = step(self, *arguments)  # type: ignore[arg-type]
        if self.position.total >= 1:
            print(self.position.total + 1, flush=True)
        return value

    loop.Trainer._step = slow  # type: ignore[method-assign, assignment]
    outcome = loop.train(toy.recipe(epochs=2000, workers=2), Path(sys.argv[1]), loop.Device("cpu"), toy.splits())
    print("finished" if outcome.finished else "stopped", flush=True)


if __name__ == "__main__":
    main()
