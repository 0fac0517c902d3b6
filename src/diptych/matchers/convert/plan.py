"""How one checkpoint becomes a matcher: which tensor goes where, and the strict landing of all of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.data.tokens import Tokenizer
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import MatcherConfig
from diptych.matchers.convert.checkpoint import Checkpoint, shown

COUNTER = "num_batches_tracked"  # BatchNorm's, which evaluation never sees and old versions of torch do not have


@dataclass(frozen=True)
class Plan:
    """What a checkpoint was found to be.

    names: the start of a tensor's name, up to a dot, or the whole of it, and what stands there in ours
    copies: the same for tensors that a file may hold a second time
    unused: the start of names that change no score, and why
    edits: our name of a tensor, and what is done to it
    assets: files that describe backbones, by their path in the matcher's folder
    notes: what a user should know of this model
    """

    config: MatcherConfig
    tokenizer: Tokenizer
    names: Mapping[str, str]
    copies: Mapping[str, str] = field(default_factory=dict)
    unused: Mapping[str, str] = field(default_factory=dict)
    edits: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    assets: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def land(plan: Plan, checkpoint: Checkpoint, matcher: Matcher) -> list[str]:
    """Load every tensor; a missing, left-over or misshapen one is an error that names it. Returns what was not used."""
    path, expected = checkpoint.path, matcher.state_dict()
    everywhere = {**plan.names, **plan.copies}
    landed: dict[str, Tensor] = {}
    origins: dict[str, str] = {}
    unused = []
    for name, tensor in checkpoint.tensors.items():
        if _match(name, plan.unused) is not None:
            unused.append(name)
            continue
        prefix = _match(name, everywhere)
        ours = None if prefix is None else everywhere[prefix] + name[len(prefix) :]
        if ours is None or ours not in expected:
            if name.endswith(f".{COUNTER}"):
                unused.append(name)
                continue
            raise DiptychError(f"{shown(name)} is left over: a {plan.config.kind} matcher has no such part", where=path)
        if tensor.shape != expected[ours].shape:
            raise DiptychError(
                f"{shown(name)} has shape {tuple(tensor.shape)}; expected {tuple(expected[ours].shape)}", where=path
            )
        if ours in landed and not ours.endswith(COUNTER) and not torch.equal(landed[ours], tensor):
            raise DiptychError(
                f"{shown(name)} and {shown(origins[ours])} must be equal, since this matcher shares the two", where=path
            )
        landed[ours], origins[ours] = tensor, name
    for ours, tensor in expected.items():
        if ours.endswith(COUNTER):
            landed.setdefault(ours, tensor)
            continue
        for name in _theirs(ours, plan.names):
            if name not in checkpoint.tensors:
                raise DiptychError(f"{shown(name)} is missing", where=path)
    for ours, edit in plan.edits.items():
        landed[ours] = edit(landed[ours])
    matcher.load_state_dict({name: tensor.to(expected[name].dtype) for name, tensor in landed.items()})
    return unused


def _starts(name: str, start: str) -> bool:
    return name == start or (start.endswith(".") and name.startswith(start))


def _match(name: str, starts: Iterable[str]) -> str | None:
    return max((start for start in starts if _starts(name, start)), key=len, default=None)


def _theirs(ours: str, names: Mapping[str, str]) -> list[str]:
    """The authors' names of a tensor of ours: one, or as many as layers share it."""
    return [start + ours[len(target) :] for start, target in names.items() if _starts(ours, target)]
