"""Embeds a folder and is killed at every step in turn: `python -m tests.search.filling.killed_embed SOURCE OUT MODEL`.

A child of each turn goes on in the same folder and kills itself before its k-th step; the last one comes through.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from diptych.search.filling import embed_parts, parts_folder
from diptych.search.filling.embed import embed
from diptych.search.filling.entry_table import EntryTable
from diptych.search.models.embedder import load_embedder

PART, ROWS, STEP = 5, 2, 3


def counted(work: Callable[..., Any], steps: list[int]) -> Callable[..., Any]:
    def step(*arguments: Any) -> Any:
        steps[0] -= 1
        if steps[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*arguments)

    return step


def main(source: str, out: str, model: str) -> None:
    load_embedder(model, "cpu")  # imports once what every child needs
    for turn in range(100):
        child = os.fork()
        if child == 0:
            steps = [1 + STEP * turn]
            embed_parts.ROWS, embed_parts.MEASURED = ROWS, 0.0
            EntryTable.write = counted(EntryTable.write, steps)  # type: ignore[method-assign]
            parts_folder.os.fsync = counted(os.fsync, steps)  # type: ignore[attr-defined]
            parts_folder.os.replace = counted(os.replace, steps)  # type: ignore[attr-defined]
            embed([source], out, model, part=PART, device="cpu", threads=1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            print(turn)  # how many were killed
            sys.exit(status != 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
