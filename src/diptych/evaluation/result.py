"""The result of an evaluation: figures for people, and per-query results for comparing runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from diptych.common.config import parse, read_json
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

    >>> result = evaluate_matcher(matcher, collection)
    >>> result["rsum"] == sum(result[f"{way}/r@{k}"] for way in ("i2t", "t2i") for k in (1, 5, 10))
    True
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
        """A figure by its name, with the protocol in front or without.

        >>> evaluation["i2t/r@10"]
        100.0
        """
        for key in (name, prefixed(self.protocol, name)):
            if key in self.figures:
                return self.figures[key]
        raise DiptychError(f"no such figure; {nearest(name, list(self.figures))}", where=name)

    def described(self, *, model: str = "", data: str = "", split: str = "", notes: Sequence[str] = ()) -> "Evaluation":
        """The same result, saying what was evaluated on what.

        >>> evaluation.described(model="runs/mine", split="test").model
        'runs/mine'
        """
        return replace(self, model=model, data=data, split=split, notes=self.notes + tuple(notes))

    def with_figures(self, extra: dict[str, float]) -> "Evaluation":
        """More figures of the model's own, under the same protocol.

        >>> evaluation.with_figures({"seconds": 2.0})["seconds"]
        2.0
        """
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
        """One object with the figures at the top, beside what was evaluated: what `--json` prints.

        >>> evaluation.flat()["i2t/r@10"]
        100.0
        """
        tree = self.tree()
        return {key: tree[key] for key in tree if key not in ("format", "figures")} | self.figures

    def save(self, folder: Path) -> Path:
        """Write `<protocol>-<split>.json` and, beside it, the per-query results as .npz; returns the JSON's path.

        >>> evaluation.described(split="test").save(Path("evaluations")).name
        'all-pairs-test.json'
        """
        name = f"{self.protocol}-{self.split}" if self.split else self.protocol
        path = folder / f"{name.replace('/', '-')}.json"
        with written_aside(path.with_suffix(".npz")) as aside, aside.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **self.per_query)
        write_json(path, self.tree())
        return path

    @staticmethod
    def load(path: Path) -> "Evaluation":
        """Read what `save` wrote.

        >>> path = evaluation.save(Path("evaluations"))
        >>> Evaluation.load(path)["rsum"] == evaluation["rsum"]
        True
        """
        tree = read_json(path)
        if not isinstance(tree, dict) or tree.get("format") != FORMAT:
            raise DiptychError(f"format: expected {FORMAT!r}", where=path)
        saved = parse(_Saved, tree, str(path))
        beside = path.with_suffix(".npz")
        try:
            with np.load(beside, allow_pickle=False) as file:
                per_query = {key: file[key] for key in file.files}
        except Exception as error:  # a broken archive can make its reader raise anything
            reason = getattr(error, "strerror", None) or error
            what = f"expected the per-query results that belong to {path.name}: {reason}"
            raise DiptychError(what, where=beside) from None
        _check_per_query(per_query, beside)
        return Evaluation(
            protocol=saved.protocol,
            figures=saved.figures,
            ranges={key: (low, high) for key, (low, high) in saved.ranges.items()},
            images=saved.images,
            sentences=saved.sentences,
            per_query=per_query,
            data=saved.data,
            split=saved.split,
            model=saved.model,
            notes=saved.notes,
        )


def _check_per_query(per_query: dict[str, np.ndarray], where: Path) -> None:
    """See that there is one number, or one name, for each query of a direction."""
    lengths: dict[str, int] = {}
    for key, values in per_query.items():
        expected = "U" if key.endswith("_ids") else "fiub"
        if values.dtype.kind not in expected or values.ndim != 1:
            what = f"{key}: an array {values.shape} of {values.dtype}; expected one value for each query"
            raise DiptychError(what, where=where)
        direction = key.partition("/")[0]
        if lengths.setdefault(direction, len(values)) != len(values):
            raise DiptychError(f"{key}: {len(values)} values for {lengths[direction]} queries", where=where)


@dataclass(frozen=True)
class _Saved:
    """An evaluation as its JSON file has it, so that a damaged one is told by its field."""

    format: str
    protocol: str
    model: str
    data: str
    split: str
    images: int
    sentences: int
    figures: dict[str, float]
    ranges: dict[str, tuple[float, ...]]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key, ends in self.ranges.items():
            if len(ends) != 2:
                raise ValueError(f"ranges.{key}: expected two numbers")


def prefixed(protocol: str, name: str) -> str:
    """A figure's full name: the protocol in front, except where all pairs are simply taken."""
    return name if protocol == "all-pairs" else f"{protocol}/{name}"
