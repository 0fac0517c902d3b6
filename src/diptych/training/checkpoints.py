"""Checkpoints: folders written whole, `best` and `last` pointing at two of them."""

import json
import os
import shutil
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from diptych.common.config import parse, parse_json, read_json
from diptych.common.errors import DiptychError
from diptych.common.files import read_text, write_json, write_text
from diptych.common.machine import torch_reason, writing
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
    folder = _free(run / "checkpoints" / f"step-{position.total:08d}")
    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        with writing(folder):
            _write(aside, trained, position, card)
            os.replace(aside, folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    with writing(run):
        _sync(folder.parent)
        _point(run / "last", folder)
        if best:
            _point(run / "best", folder)
        _sync(run)  # from here on a power cut finds the new checkpoint, and the old ones may go
    links = [run / name for name in ("last", "best") if (run / name).is_symlink()]
    pointed = {os.path.realpath(link) for link in links}  # of a link to itself, the link
    for other in (run / "checkpoints").iterdir():
        if os.path.realpath(other) not in pointed:
            shutil.rmtree(other, ignore_errors=True)


def _write(aside: Path, trained: Trained, position: Position, card: str) -> None:
    """All files of a checkpoint, on the disk."""
    average = trained.average
    with nullcontext() if average is None else average.in_place():
        trained.matcher.save_pretrained(aside, card)
    torch.save(_state(trained), aside / "trainer.pt")
    write_json(aside / "position.json", asdict(position))
    for path in (*aside.rglob("*"), aside):
        _sync(path)


def _free(folder: Path) -> Path:
    """A name that no checkpoint has: what `last` points at is never taken away before there is a newer one."""
    names = [folder, *(folder.with_name(f"{folder.name}-{again}") for again in range(2, 100))]
    return next(name for name in names if not name.exists())


def _sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


def has_checkpoint(run: Path) -> bool:
    """Whether a run has come to its first checkpoint."""
    last = run / "last"
    return last.exists() or last.is_symlink() or bool(_whole(run))


def _whole(run: Path) -> list[Path]:
    """Checkpoints that were written to their end, oldest first."""
    return sorted((run / "checkpoints").glob("step-*"))


def _last(run: Path) -> Path | None:
    """The checkpoint to go on from; None where there is none yet."""
    last = run / "last"
    if last.is_dir():
        return last
    whole = _whole(run)
    if last.is_symlink():
        others = f"there is {whole[-1]}" if whole else "there is no other"
        raise DiptychError(
            f"{last}: points at a checkpoint that is gone, {os.readlink(last)}; {others}: point it at one, or remove it"
            " and begin anew"
        )
    return whole[-1] if whole else None  # killed between writing its first checkpoint and pointing at it


def load_checkpoint(run: Path, trained: Trained) -> Position | None:
    """Put a run back to its last checkpoint; None where there is none yet."""
    folder = _last(run)
    if folder is None:
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
    except (OSError, EOFError, KeyError, ValueError, RuntimeError, UnpicklingError) as error:
        what = f"damaged, or not this run's optimiser state: {torch_reason(error)}"
        raise DiptychError(what, where=folder / "trainer.pt") from None
    return parse(Position, read_json(folder / "position.json"), str(folder / "position.json"))


def cut_metrics(path: Path, total: int) -> None:
    """Drop the lines that a run wrote after its last checkpoint, so that a resumed run reads like an unbroken one."""
    if not path.exists():
        return
    kept = []
    for line in read_text(path).splitlines():
        try:
            entry = parse_json(line)
        except json.JSONDecodeError:
            continue  # a line cut off by the kill
        step = entry.get("step") if isinstance(entry, dict) else None
        if isinstance(step, int) and step <= total:
            kept.append(line)
    write_text(path, "".join(line + "\n" for line in kept))
