"""The result of an evaluation: figures for people, and per-query results for comparing runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from diptych.common.config import read_json
from diptych.common.errors import DiptychError, nearest
from diptych.common.files import write_json, written_aside
from diptych.evaluation.figures import Figures, Ranges

FORMAT = "diptych-evaluation-1"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Figures of one model under one protocol.

    figures: by name, with the protocol in front (`coco-1k/i2t/r@1`); percent, or ranks from 1
    ranges: the figures that ties leave open, (lowest, highest)
    per_query: `i2t/query` and `i2t/owner` (queries,): positions of what asks and of its picture; `i2t/weight`: its
        share of the figures; then `i2t/optimistic` and `i2t/pessimistic` ranks, or the query's own figures; and
        the same for `t2i`; `image_ids` (images,) and `sentence_ids` (sentences,) where they are known
    """

    protocol: str
    figures: Figures
    ranges: Ranges
    images: int
    sentences: int
    per_query: dict[str, np.ndarray]
    data: str = ""
    split: str = ""
    model: str = ""
    notes: tuple[str, ...] = field(default=())

    def __getitem__(self, name: str) -> float:
        """A figure by its name, with the protocol in front or without."""
        for key in (name, prefixed(self.protocol, name)):
            if key in self.figures:
                return self.figures[key]
        raise DiptychError(f"no such figure; {nearest(name, list(self.figures))}", where=name)

    def described(self, *, model: str = "", data: str = "", split: str = "", notes: Sequence[str] = ()) -> "Evaluation":
        """The same result, saying what was evaluated on what."""
        return replace(self, model=model, data=data, split=split, notes=self.notes + tuple(notes))

    def with_figures(self, extra: dict[str, float]) -> "Evaluation":
        """More figures of the model's own, under the same protocol."""
        return replace(self, figures=self.figures | {prefixed(self.protocol, k): float(v) for k, v in extra.items()})

    def tree(self) -> dict[str, Any]:
        """Everything but the per-query results, ready for JSON."""
        return {
            "format": FORMAT,
            "protocol": self.protocol,
            "model": self.model,
            "data": self.data,
            "split": self.split,
            "images": self.images,
            "sentences": self.sentences,
            "figures": self.figures,
            "ranges": {key: list(ends) for key, ends in self.ranges.items()},
            "notes": list(self.notes),
        }

    def flat(self) -> dict[str, Any]:
        """One object with the figures at the top, beside what was evaluated: what `--json` prints."""
        tree = self.tree()
        return {key: tree[key] for key in tree if key not in ("format", "figures")} | self.figures

    def save(self, folder: Path) -> Path:
        """Write `<protocol>-<split>.json` and, beside it, the per-query results as .npz; returns the JSON's path."""
        name = f"{self.protocol}-{self.split}" if self.split else self.protocol
        path = folder / f"{name.replace('/', '-')}.json"
        with written_aside(path.with_suffix(".npz")) as aside, aside.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **self.per_query)
        write_json(path, self.tree())
        return path

    @staticmethod
    def load(path: Path) -> "Evaluation":
        """Read what `save` wrote."""
        tree = read_json(path)
        if not isinstance(tree, dict) or tree.get("format") != FORMAT:
            raise DiptychError(f"format: expected {FORMAT!r}", where=path)
        beside = path.with_suffix(".npz")
        try:
            with np.load(beside, allow_pickle=False) as file:
                per_query = {key: file[key] for key in file.files}
        except (OSError, ValueError, BadZipFile) as error:
            reason = getattr(error, "strerror", None) or error
            what = f"expected the per-query results that belong to {path.name}: {reason}"
            raise DiptychError(what, where=beside) from None
        return Evaluation(
            protocol=tree["protocol"],
            figures=tree["figures"],
            ranges={key: (low, high) for key, (low, high) in tree["ranges"].items()},
            images=tree["images"],
            sentences=tree["sentences"],
            per_query=per_query,
            data=tree["data"],
            split=tree["split"],
            model=tree["model"],
            notes=tuple(tree["notes"]),
        )


def prefixed(protocol: str, name: str) -> str:
    """A figure's full name: the protocol in front, except where all pairs are simply taken."""
    return name if protocol == "all-pairs" else f"{protocol}/{name}"
