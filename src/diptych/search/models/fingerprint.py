"""By what a model is known again on another machine, or another day."""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from diptych.common.errors import DiptychError
from diptych.matchers.layout import Layout

if TYPE_CHECKING:  # these need torch, which a run that finds nothing to do does not
    from diptych.search.models.embedder import Embedder, LocalsSource


@dataclass(frozen=True)
class Fingerprint:
    """What vectors are made with.

    name: what loads the model again
    text, picture: what it makes of a fixed sentence and a fixed picture
    locals: what local features that are kept are computed with, as JSON; empty where none are kept
    """

    name: str
    layout: Layout
    text: str
    picture: str
    locals: str = ""

    @classmethod
    def of(cls, embedder: "Embedder", kept: "LocalsSource | None") -> "Fingerprint":
        """That of a loaded model."""
        probes = embedder.probe(pictures=False), embedder.probe(pictures=True)
        return cls(embedder.name, embedder.layout, *probes, "" if kept is None else json.dumps(asdict(kept)))

    @classmethod
    def read(cls, told: dict[str, Any]) -> "Fingerprint":
        """As `asdict` wrote it."""
        return cls(**{**told, "layout": Layout(**told["layout"])})

    @property
    def locals_source(self) -> "LocalsSource | None":
        """What local features that are kept are computed with."""
        from diptych.search.models.embedder import LocalsSource

        return LocalsSource(**json.loads(self.locals)) if self.locals else None

    def check(self, embedder: "Embedder", where: object) -> None:
        """See that a loaded model is the one that is meant."""
        from diptych.search.models.embedder import same_probe

        probes = (self.text, embedder.probe(pictures=False)), (self.picture, embedder.probe(pictures=True))
        if embedder.layout != self.layout or not all(same_probe(one, other) for one, other in probes):
            raise DiptychError(
                f"the model {embedder.name!r} is not what it was when the plan was made: its vectors differ; "
                "embed into another folder",
                where=where,
            )
