"""Whose a run folder is: one recipe's, and one trainer's at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diptych.common.config import to_tree
from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.training.checkpoints import has_checkpoint
from diptych.training.recipe import Recipe, load_run_recipe

LOCK = ".lock"
GROWS = "training.epochs"  # a run may go on for more of them
BESIDE = ("changed", "dataset", "paper", "paper_row")  # what results are shown beside: no weight depends on it
_MISSING = object()


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Keep a run folder to this process. The lock goes with the process, however it ends.

    It is one of POSIX, which children do not inherit: workers that outlive a killed trainer do not hold it.
    """
    with alone(run / LOCK) as free:
        if not free:
            raise DiptychError(f"{run}: another process is training there; wait for it, or give another --out")
        yield


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Hold the lock of this name, made if need be; whether no other process holds it, in which case this one does."""
    try:
        import fcntl
    except ImportError:  # not on this system: nothing to lock with
        yield True
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def check_claim(run: Path, recipe: Recipe) -> None:
    """See that a folder may be this recipe's: it has no checkpoint yet, or one of the same recipe.

    More epochs than before are the same recipe: the run goes on for them.
    """
    if not (run / "recipe.json").exists() or not has_checkpoint(run):
        return
    old, new = load_run_recipe(run), recipe  # keys that came after it have their defaults
    changed = [key for key in _differences(to_tree(old), to_tree(new)) if key not in BESIDE]
    if changed == [GROWS] and new.training.epochs > old.training.epochs:
        return
    if changed == [GROWS]:
        raise DiptychError(
            f"{run}: holds a run of {old.training.epochs} epochs; {GROWS} may grow,"
            f" and {new.training.epochs} are fewer; give another --out"
        )
    if changed:
        verb = "differs" if len(changed) == 1 else "differ"
        raise DiptychError(f"{run}: holds a run of another recipe ({', '.join(changed)} {verb}); give another --out")


def claim(run: Path, recipe: Recipe) -> None:
    """Write down whose the folder is now. Training starts after it, and nothing that could be checked before."""
    check_claim(run, recipe)
    path = run / "recipe.json"
    if not path.exists() or list(_differences(to_tree(load_run_recipe(run)), to_tree(recipe))):
        write_json(path, to_tree(recipe))


def _differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The dotted keys at which two trees differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key, _MISSING), new.get(key, _MISSING), f"{path}.{key}" if path else key)
    elif old != new:
        yield path
