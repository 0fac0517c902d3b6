"""What a run was trained with, and when: environment.json in its folder, an entry for each start."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import diptych
from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.common.files import write_json

PACKAGES = ["torch", "lightning", "numpy", "safetensors", "transformers", "tokenizers", "Pillow"]


class Environment:
    """The entry of one start of a run; `write` brings its times up to date."""

    def __init__(self, run: Path, first: int, processes: int, device: torch.device, init_from: str | None) -> None:
        """first: steps that were done before; processes: how many train; init_from: whose weights it began with."""
        self.path = run / "environment.json"
        self._started = datetime.now(UTC)
        self._entry: dict[str, Any] = {
            "from_step": first,
            "versions": versions(),
            "hardware": {**hardware(device), "processes": processes},
            "commit": commit(),
        }
        if init_from is not None and first == 0:
            self._entry["init_from"] = init_from
        self._before = starts(run)

    def write(self, step: int) -> None:
        """Write the entry down: the run has come to so many steps by now."""
        now = datetime.now(UTC)
        times = {
            "started": self._started.isoformat(timespec="seconds"),
            "ended": now.isoformat(timespec="seconds"),
            "seconds": round((now - self._started).total_seconds(), 1),
            "to_step": step,
        }
        write_json(self.path, {"starts": [*self._before, {**times, **self._entry}]})


def starts(run: Path) -> list[Any]:
    """The entries of a run so far. A file that cannot be read is no reason not to train: it is kept aside."""
    path = run / "environment.json"
    if not path.is_file():
        return []
    try:
        tree = read_json(path)
        if isinstance(tree, dict) and isinstance(tree.get("starts"), list):
            return list(tree["starts"])
    except DiptychError:
        pass
    os.replace(path, path.with_name(f"{path.name}.damaged"))
    return []


def versions() -> dict[str, str]:
    """Of Python, Diptych and the packages that decide what a run computes; those that are not there are left out."""
    found = {"python": platform.python_version(), "diptych": diptych.__version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if torch.version.cuda is not None:
        found["cuda"] = str(torch.version.cuda)
    return found


def hardware(device: torch.device) -> dict[str, Any]:
    """The machine, and what of it is trained on."""
    found: dict[str, Any] = {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": device.type,
    }
    if device.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(device)
        found["gpu_gib"] = round(torch.cuda.get_device_properties(device).total_memory / 2**30, 1)
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit() -> str | None:
    """The commit of Diptych's own source, with `+changes` where files differ from it; None where it is installed."""
    source = Path(diptych.__file__)
    if _git(source.parent, "ls-files", "--error-unmatch", source.name) is None:
        return None  # not a file of a repository, though its folder may lie inside one
    found = _git(source.parent, "rev-parse", "HEAD")
    if found is not None and _git(source.parent, "status", "--porcelain", "--untracked-files=no"):
        found += "+changes"
    return found


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None where it fails, or is not there."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
