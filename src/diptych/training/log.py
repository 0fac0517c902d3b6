"""What a run tells while it goes on: metrics.jsonl, and TensorBoard's files where they are asked for."""

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.training.checkpoints import cut_metrics


class TrainingLog:
    """The losses of steps and the figures of evaluations.

    A loss is a tensor on the device, and reading it waits for all work there. So losses are kept and read a few at a
    time, and always before a checkpoint: none is ever written behind a loss that is not finite.
    """

    def __init__(self, run: Path, speaks: bool, tensorboard: bool, total: int, every: int) -> None:
        """speaks: whether this process writes; total: steps done before; every: steps whose losses are read at once."""
        self.run, self.speaks, self.every = run, speaks, every
        self.loss = math.nan  # the last that was read
        self._unread: list[tuple[dict[str, Any], Tensor]] = []
        self._writer: Any = None
        if speaks:
            cut_metrics(run / "metrics.jsonl", total)
            if tensorboard:
                from torch.utils.tensorboard import SummaryWriter

                self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=total)

    def step(self, step: int, loss: Tensor, rate: float, epoch: int) -> None:
        """Take in one step's loss."""
        self._unread.append(({"step": step, "lr": rate, "epoch": epoch}, loss.detach()))
        if len(self._unread) >= self.every:
            self.read()

    def read(self) -> None:
        """Read the losses that are kept, write them down, and refuse one that is not finite."""
        if not self._unread:
            return
        entries, losses = zip(*self._unread, strict=True)
        self._unread = []
        lines: list[dict[str, Any]] = []
        for entry, value in zip(entries, torch.stack(losses).tolist(), strict=True):
            if not math.isfinite(value):
                self._write(lines)
                last = self.run / "last"
                good = (
                    f"the last good checkpoint is {last.resolve()}" if last.is_dir() else "there is no checkpoint yet"
                )
                raise DiptychError(f"{self.run}: the loss is {value} at step {entry['step']}; {good}")
            lines.append({"step": entry["step"], "loss": value, "lr": entry["lr"], "epoch": entry["epoch"]})
            self.loss = value
        self._write(lines)

    def evaluation(self, step: int, epoch: int, figures: dict[str, float]) -> None:
        """Write down what an evaluation found after so many steps."""
        self._write([{"step": step, "epoch": epoch, "validation": figures}])

    def close(self) -> None:
        """No more is to come."""
        if self._writer is not None:
            self._writer.close()

    def _write(self, entries: list[dict[str, Any]]) -> None:
        if not self.speaks or not entries:
            return
        with (self.run / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(entry) + "\n" for entry in entries))
        if self._writer is not None:
            for entry in entries:
                flat = {**{k: v for k, v in entry.items() if k != "validation"}, **entry.get("validation", {})}
                step = flat.pop("step")
                for name, value in flat.items():
                    self._writer.add_scalar(name, value, step)
