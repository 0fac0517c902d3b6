"""Checkpoints: folders written whole, `best` and `last` pointing at two of them."""

import os
import shutil
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from diptych.common.config import parse, read_json
from diptych.common.errors import DiptychError
from diptych.common.files import write_json, write_text
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import load_weights
from diptych.training.average import WeightAverage


@dataclass(frozen=True)
class Position:
    """Where a run is: `epoch` and `step` are what comes next (step within the epoch), `total` steps are done."""

    epoch: int = 0
    step: int = 0
    total: int = 0
    best_rsum: float = -1.0
    best_epoch: int = -1


@dataclass(frozen=True)
class Trained:
    """All that steps change: what a checkpoint holds, and is put back from."""

    matcher: Matcher
    optimiser: torch.optim.Optimizer
    loss: torch.nn.Module
    average: WeightAverage | None = None
    scaler: torch.amp.GradScaler | None = None


def save_checkpoint(run: Path, trained: Trained, position: Position, card: str, best: bool = False) -> None:
    """Write a checkpoint beside the old ones, point `last` (and `best`) at it, then drop what nothing points at."""
    name = f"step-{position.total:08d}"
    folder = run / "checkpoints" / name
    aside = run / "checkpoints" / f".{name}.part"
    shutil.rmtree(aside, ignore_errors=True)
    average = trained.average
    with nullcontext() if average is None else average.in_place():
        trained.matcher.save_pretrained(aside, card)
    torch.save(_state(trained), aside / "trainer.pt")
    write_json(aside / "position.json", asdict(position))
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(aside, folder)
    _point(run / "last", folder)
    if best:
        _point(run / "best", folder)
    pointed = {(run / link).resolve() for link in ("last", "best") if (run / link).is_symlink()}
    for other in (run / "checkpoints").iterdir():
        if other.resolve() not in pointed:
            shutil.rmtree(other, ignore_errors=True)


def _state(trained: Trained) -> dict[str, Any]:
    state: dict[str, Any] = {"optimiser": trained.optimiser.state_dict(), "loss": trained.loss.state_dict()}
    if trained.average is not None:
        state |= {"raw": trained.average.raw(), "averaged_steps": trained.average.steps}
    if trained.scaler is not None:
        state["scaler"] = trained.scaler.state_dict()
    return state


def _point(link: Path, folder: Path) -> None:
    aside = link.with_name(f".{link.name}.part")
    aside.unlink(missing_ok=True)
    aside.symlink_to(folder.relative_to(link.parent), target_is_directory=True)
    os.replace(aside, link)


def load_checkpoint(run: Path, trained: Trained) -> Position | None:
    """Put a run back to its last checkpoint; None where there is none yet."""
    folder = run / "last"
    if not folder.is_dir():
        return None
    load_weights(trained.matcher, folder / "model.safetensors")
    try:
        state: dict[str, Any] = torch.load(folder / "trainer.pt", map_location="cpu", weights_only=True)
        trained.optimiser.load_state_dict(state["optimiser"])
        trained.loss.load_state_dict(state["loss"])
        if trained.average is not None:
            trained.average.restore(state["raw"], state["averaged_steps"])
        if trained.scaler is not None and "scaler" in state:
            trained.scaler.load_state_dict(state["scaler"])
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        raise DiptychError(f"{folder / 'trainer.pt'}: not this run's optimiser state: {error}") from None
    return parse(Position, read_json(folder / "position.json"), str(folder / "position.json"))


def cut_metrics(path: Path, total: int) -> None:
    """Drop the lines that a run wrote after its last checkpoint, so that a resumed run reads like an unbroken one."""
    import json

    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue  # a line cut off by the kill
        if entry["step"] <= total:
            kept.append(line)
    write_text(path, "".join(line + "\n" for line in kept))
