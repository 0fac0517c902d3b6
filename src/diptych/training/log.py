"""What a run tells while it goes on: metrics.jsonl, and whatever tracks it besides."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.training.checkpoints import cut_metrics
from diptych.training.trackers import Tracker


@dataclass(frozen=True)
class Measured:
    """What is known of a step, as tensors on the device, without their graph.

    loss: with its terms; gradient: the norm of the whole gradient, before it is clipped
    terms: what the loss is the sum of, where a recipe has terms beside it
    """

    loss: Tensor
    gradient: Tensor
    terms: dict[str, Tensor] = field(default_factory=dict)

    def values(self) -> list[Tensor]:
        """All numbers, in one order."""
        return [self.loss, self.gradient, *self.terms.values()]


class TrainingLog:
    """The losses of steps and the figures of evaluations.

    A loss is a tensor on the device, and reading it waits for all work there. So losses are kept and read a few at a
    time, and always before a checkpoint: none is ever written behind a loss that is not finite.
    """

    def __init__(self, run: Path, speaks: bool, trackers: Sequence[Tracker], total: int, every: int) -> None:
        """speaks: whether this process writes; trackers: what is told the same numbers
        total: steps done before; every: steps whose losses are read at once
        """
        self.run, self.speaks, self.every = run, speaks, every
        self.loss = math.nan  # the last that was read
        self._unread: list[tuple[dict[str, Any], Measured]] = []
        self._trackers = trackers
        if speaks:
            cut_metrics(run / "metrics.jsonl", total)

    def step(self, step: int, measured: Measured, rate: float, epoch: int) -> None:
        """Take in one step."""
        self._unread.append(({"step": step, "lr": rate, "epoch": epoch}, measured))
        if len(self._unread) >= self.every:
            self.read()

    def read(self) -> None:
        """Read the losses that are kept, write them down, and refuse one that is not finite."""
        if not self._unread:
            return
        unread, self._unread = self._unread, []
        numbers = iter(torch.stack([value.float() for _, measured in unread for value in measured.values()]).tolist())
        lines: list[dict[str, Any]] = []
        for entry, measured in unread:
            value, gradient = next(numbers), next(numbers)
            terms = {name: next(numbers) for name in measured.terms}
            if not math.isfinite(value):
                self._write(lines)
                last = self.run / "last"
                good = (
                    f"the last good checkpoint is {last.resolve()}" if last.is_dir() else "there is no checkpoint yet"
                )
                raise DiptychError(f"{self.run}: the loss is {value} at step {entry['step']}; {good}")
            line = {"step": entry["step"], "loss": value, "lr": entry["lr"], "epoch": entry["epoch"]}
            # Half precision leaves a step out whose gradient overflows: that norm is no number.
            line["gradient"] = gradient if math.isfinite(gradient) else None
            lines.append({**line, "terms": terms} if terms else line)
            self.loss = value
        self._write(lines)

    def evaluation(self, step: int, epoch: int, figures: dict[str, float]) -> None:
        """Write down what an evaluation found after so many steps."""
        self._write([{"step": step, "epoch": epoch, "validation": figures}])

    def close(self) -> None:
        """No more is to come."""
        for tracker in self._trackers:
            tracker.close()

    def _write(self, entries: list[dict[str, Any]]) -> None:
        if not self.speaks or not entries:
            return
        with (self.run / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(entry) + "\n" for entry in entries))
        for entry in entries:
            terms = {f"terms/{name}": value for name, value in entry.get("terms", {}).items()}
            flat = {k: v for k, v in entry.items() if k not in ("step", "validation", "terms") and v is not None}
            for tracker in self._trackers:
                tracker.log({**flat, **terms, **entry.get("validation", {})}, entry["step"])
