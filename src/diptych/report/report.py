"""A run on one page: everything that can be said of it, in one file that needs nothing else."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from diptych import __version__
from diptych.common.device import pick_device
from diptych.common.errors import DiptychError, nearest
from diptych.common.files import write_text
from diptych.common.pages import render
from diptych.data.collection import Collection
from diptych.data.scenes import near_miss_set
from diptych.evaluation.result import Evaluation
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import matcher_title
from diptych.report.coefficients import coefficients_of
from diptych.report.curves import curves_section
from diptych.report.embedding import embed
from diptych.report.example_sections import examples_section, failures_section
from diptych.report.gates import gates_of
from diptych.report.model_sections import (
    coefficients_section,
    embedding_section,
    gates_section,
    near_miss_section,
)
from diptych.report.near_misses import PAIRS, confusions_of, drawn_seed
from diptych.report.parts import Pictures, Section
from diptych.report.recall import recall_section
from diptych.report.run_folder import RunFolder, read_run
from diptych.report.run_section import progress_of, run_section
from diptych.report.subject import Subject, look_at
from diptych.training.data import ScenesConfig, load_splits

SPLITS = {"train": "train", "val": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True)
class Given:
    """What to look at; without a collection, the run's own data.

    split: which part of the run's own data; its name where a collection is given
    notes: sentences about the collection that belong at the top
    """

    collection: Collection | None = None
    split: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """A report: the page, its sections' names, and what was left out or must not be overlooked, a sentence each."""

    html: str
    title: str
    sections: tuple[str, ...]
    notes: tuple[str, ...]
    pictures: int = 0
    sentences: int = 0
    whole: int = 0
    figures: dict[str, float] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the page, whole or not at all."""
        try:
            write_text(path, self.html)
        except OSError as error:
            raise DiptychError(f"the report cannot be written there: {error.strerror}", where=path) from None


def make_report(
    run: Path, given: Given | None = None, *, pictures: int | None = None, seed: int = 0, device: str | None = None
) -> Report:
    """The report of a run folder. The same run, data and seed give the same page.

    pictures: how many of the split are looked at, drawn with the seed; by default as many as a minute or two allow
    """
    folder, given = read_run(run), given or Given()
    if given.collection is None and given.split not in (None, *SPLITS):
        raise DiptychError(f"split: {given.split!r} does not exist; {nearest(given.split or '', list(SPLITS))}")
    where = pick_device(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _Maker(folder, given, pictures, seed, where).make()


class _Maker:
    """One report in the making."""

    def __init__(
        self,
        run: RunFolder,
        given: Given,
        most: int | None,
        seed: int,
        device: torch.device,
    ) -> None:
        self.run, self.given, self.most, self.seed, self.device = run, given, most, seed, device
        self.notes: list[str] = [*run.problems, *given.notes]
        self.matcher: Matcher | None = None
        self.subject: Subject | None = None
        self.measured: Evaluation | None = None

    def make(self) -> Report:
        """All sections in order, each left out with its reason where it cannot be made."""
        run = self.run
        if not run.finished:
            self.notes.insert(0, f"This run is {'not begun' if run.position is None else progress_of(run)}.")
        self.matcher = self._tried("the model and all that needs it", self._load)
        if self.matcher is not None:
            self.subject = self._tried("all that needs the data", self._look)
        if self.subject is not None:
            self.measured = self._tried("all that needs ranks", self.subject.evaluate)
        sections = [run_section(run, self.matcher), curves_section(run), self._recall()]
        if self.subject is not None and self.measured is not None:
            shown = Pictures()
            subject, measured = self.subject, self.measured
            sections += self._section(lambda: examples_section(subject, measured, shown, self.seed), "the examples")
            sections += self._section(lambda: failures_section(subject, measured, shown), "the worst failures")
        sections += self._section(self._near_misses, "the confusion of near misses")
        if self.subject is not None:
            sections += self._section(self._gates, "the histograms of gates")
            sections += self._section(self._coefficients, "the pooling coefficients")
            sections += self._section(self._embedding, "the map of the embeddings")
        return self._page(sections)

    def _tried(self, what: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except DiptychError as error:
            told = error.within(self.run.path).rstrip(".")
            self.notes.append(f"Left out: {what}. The reason: {told}.")
            return None

    def _section(self, make: Callable[[], Section | None], what: str) -> list[Section]:
        made = self._tried(what, make)
        return [] if made is None else [made]

    def _load(self) -> Matcher:
        if self.run.model is None:
            raise DiptychError("the run has no checkpoint yet, so that there is nothing to look at but its log")
        if self.run.model.name == "last":
            self.notes.append("The run was not validated yet: the model is its last checkpoint, not its best.")
        return Matcher.from_pretrained(self.run.model).to(self.device)

    def _look(self) -> Subject:
        assert self.matcher is not None
        if self.given.collection is not None:
            return look_at(self.matcher, self.given.collection, self.given.split or "", self.most, self.seed)
        splits = load_splits(self.run.recipe.data)
        parts = {"train": splits.train, "val": splits.validation, "test": splits.test}
        name = SPLITS[self.given.split or "test"]
        if not len(parts[name]) and self.given.split is None:
            self.notes.append("The run's data has no test split: its validation split is looked at.")
            name = "val"
        if name == "train":
            self.notes.append("These are the pictures that the run was trained on: its figures on them are too high.")
        return look_at(self.matcher, parts[name], name, self.most, self.seed)

    def _recall(self) -> Section:
        return recall_section(self.run, self.subject, self.measured)

    def _near_misses(self) -> Section | None:
        data = self.run.recipe.data
        seed = drawn_seed(data)
        if self.matcher is None or seed is None:
            return None
        # A backbone sees every one of the pictures, which is dearer than reading features.
        count = PAIRS if self.matcher.takes_features else PAIRS // 2
        regions = data.regions if isinstance(data, ScenesConfig) and data.regions != "none" else "boxes"
        pairs = near_miss_set(count, seed=seed + 1)
        return near_miss_section(confusions_of(self.matcher, pairs, regions), count)

    def _gates(self) -> Section | None:
        assert self.subject is not None
        gates = gates_of(self.subject, self.seed)
        return None if gates is None else gates_section(gates)

    def _coefficients(self) -> Section | None:
        assert self.subject is not None
        pools = self.subject.matcher.pools()
        if not pools:
            return None
        gpo = next(iter(pools.values())).config
        return coefficients_section(coefficients_of(self.subject, self.seed), gpo.per_dimension, gpo.features)

    def _embedding(self) -> Section:
        assert self.subject is not None
        return embedding_section(embed(self.subject, self.seed), self.subject, self.seed)

    def _page(self, sections: list[Section]) -> Report:
        run = self.run
        values = {
            "title": f"{run.name}: report",
            "name": run.name,
            "state": "finished" if run.finished else "unfinished",
            "model": matcher_title(run.recipe.model.kind),
            "looked": self._looked(),
            "tallies": self._tallies(),
            "notes": self.notes,
            "sections": sections,
            "version": __version__,
            "seed": self.seed,
        }
        subject = self.subject
        return Report(
            html=str(render("report/report.html", values)),
            title=run.name,
            sections=tuple(s.id for s in sections),
            notes=tuple(self.notes),
            pictures=0 if subject is None else len(subject.collection),
            sentences=0 if subject is None else len(subject.captions),
            whole=0 if subject is None else subject.whole,
            figures={} if self.measured is None else self.measured.figures,
        )

    def _looked(self) -> str:
        subject = self.subject
        if subject is None:
            return ""
        count, split = len(subject.collection), f"the {subject.split} split" if subject.split else "the data"
        if subject.sampled:
            return (
                f"Looked at on {count:,} pictures of {split}, drawn from its {subject.whole:,} with seed {self.seed}."
            )
        return f"Looked at on all {count:,} pictures of {split}."

    def _tallies(self) -> list[tuple[str, str, str]]:
        """The few numbers that people look for first, each with its name and where it is from."""
        told: list[tuple[str, str, str]] = []
        if self.measured is not None and self.subject is not None:
            where = f"{self.subject.split or 'the data'}, {len(self.subject.collection):,} pictures"
            told += [
                ("RSUM", f"{self.measured['rsum']:.1f}", where),
                ("R@1, to sentences", f"{self.measured['i2t/r@1']:.1f} %", where),
                ("R@1, to pictures", f"{self.measured['t2i/r@1']:.1f} %", where),
            ]
        best = self.run.log.best
        if best is not None:
            told.append(("Best validation RSUM", f"{best[1]['rsum']:.1f}", f"epoch {best[0]}"))
        if self.run.position is not None:
            told.append(("Steps", f"{self.run.position.total:,}", f"{self.run.position.epoch} epochs"))
        if self.matcher is not None:
            told.append(("Parameters", _short(sum(p.numel() for p in self.matcher.parameters())), ""))
        return told


def _short(count: int) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {letter}"
    return str(count)
