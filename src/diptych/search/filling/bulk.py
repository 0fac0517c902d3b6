"""Indexing under torchrun: one process plans and writes, all of them embed.

The first process hands out entries that need embedding in rounds, and writes what comes back to the store, so that
every picture is embedded once, whatever the store, and a run that was killed goes on where it stopped.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import Any

from diptych.common.device import processes_of
from diptych.common.errors import DiptychError
from diptych.common.process_group import before_group, end_group
from diptych.search.filling.new_entry import NewEntry, Outcome
from diptych.search.filling.sync import Embed

# Entries of one process in one round: enough that decoding runs well ahead of the model.
ROUND = 256
# The first process may walk folders for long before it has work for the others.
PATIENCE = timedelta(days=2)


def world_size() -> int:
    """How many processes torchrun started; 1 without it."""
    return processes_of("WORLD_SIZE", 1)


def is_first() -> bool:
    """Whether this process plans and writes."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def together() -> Iterator[None]:
    """Join the other processes; the first one lets them go at the end, also after an error."""
    import torch.distributed as dist

    before_group()
    dist.init_process_group("gloo", timeout=PATIENCE)
    try:
        yield
    finally:
        try:
            if is_first():
                _send([None] * world_size())
        finally:
            end_group()


def hand_out(embed: Embed, settings: dict[str, Any]) -> Embed:
    """For the first process: embed entries with all processes, `embed` being its own way to do so.

    settings: what the others need to load the same model
    """

    def embed_together(entries: Iterable[NewEntry]) -> Iterator[list[Outcome]]:
        waiting = iter(entries)
        while some := list(islice(waiting, ROUND * world_size())):
            share = -(-len(some) // world_size())
            parts = [some[i * share : (i + 1) * share] for i in range(world_size())]
            own = _send([(settings, part) for part in parts])
            assert own is not None
            yield from _collect(_embedded(embed, own[1]))

    return embed_together


def take_part(load: Any) -> int:
    """For the other processes: embed what is handed out until there is no more; how many entries.

    load: makes the function that embeds from the first process's settings
    """
    embed: Embed | None = None
    count = 0
    while (task := _send(None)) is not None:
        settings, entries = task
        try:
            if embed is None:
                embed = load(settings)
            outcome: list[Outcome] | DiptychError = _embedded(embed, entries)
        except DiptychError as error:
            outcome = error
        _collect(outcome)
        count += len(entries)
    return count


def _embedded(embed: Embed, entries: list[NewEntry]) -> list[Outcome] | DiptychError:
    """Outcomes, or the error that the first process shall raise for all."""
    try:
        return [outcome for outcomes in embed(entries) for outcome in outcomes]
    except DiptychError as error:
        return error


def _send(tasks: list[Any] | None) -> Any:
    """Scatter from the first process; what this one gets."""
    import torch.distributed as dist

    got: list[Any] = [None]
    dist.scatter_object_list(got, tasks if is_first() else None, src=0)
    return got[0]


def _collect(outcome: list[Outcome] | DiptychError) -> Iterator[list[Outcome]]:
    """Gather to the first process, which goes on with every process's outcomes; the others get none."""
    import torch.distributed as dist

    gathered: list[Any] | None = [None] * world_size() if is_first() else None
    dist.gather_object(outcome, gathered, dst=0)
    parts = gathered or []
    error = next((part for part in parts if isinstance(part, DiptychError)), None)
    if error is not None:
        raise error
    return iter([part for part in parts if part])
