"""The model of an index: written down when the index is made, loaded when it is needed, seen to be the same."""

import json
import threading
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import diptych
from diptych.common.errors import DiptychError
from diptych.search.stores.store import Store

if TYPE_CHECKING:  # these need torch, which a run that finds nothing new does not
    import torch

    from diptych.search.models.embedder import Embedder, LocalsSource
    from diptych.search.models.fingerprint import Fingerprint

DEFAULT_MODEL = "default"
# Properties that say which version made an index, and when.
MADE_WITH, MADE = "made-with", "made"
# Properties that say what the model made of a fixed sentence and a fixed picture.
PROBE_TEXT, PROBE_PICTURE = "probe-text", "probe-picture"
# What an index without a model is said to be made with.
ELSEWHERE = "vectors from elsewhere"


class IndexModel:
    """What the entries of a store are embedded with. Threads may share it."""

    def __init__(self, store: Store, device: "torch.device | str | None" = None) -> None:
        self.store = store
        self.device = device
        self._lock = threading.RLock()
        self._embedder: Embedder | None = None
        self._checked_pictures = False
        self._properties = store.properties

    @property
    def known(self) -> bool:
        """Whether a model, or that there is none, was ever written down."""
        return "model" in self._properties

    @property
    def name(self) -> str:
        """Its name; empty where the vectors came from elsewhere."""
        return self._properties.get("model", "")

    @property
    def loaded(self) -> bool:
        """Whether it is in memory."""
        with self._lock:
            return self._embedder is not None

    @property
    def kept_locals(self) -> "LocalsSource | None":
        """What the local features that the store keeps were computed with."""
        from diptych.search.models.embedder import LocalsSource

        text = self._properties.get("locals")
        return LocalsSource(**json.loads(text)) if text else None

    def claim(self, name: str, kept: "LocalsSource | None" = None) -> None:
        """Write down what the index is made with, or see that it is the same already."""
        locals_ = "" if kept is None else json.dumps(asdict(kept))
        if not self.known:
            self.store.set_properties({"model": name, "locals": locals_, **_made_now()})
        elif self.name != name:
            self.store.close()
            raise DiptychError(
                f"made with {self.name or ELSEWHERE!r}, not {name or ELSEWHERE!r}; "
                "index into another file with --index",
                where=self.store.address,
            )
        elif locals_ and locals_ != self._properties.get("locals"):
            self.store.close()
            raise DiptychError("made without these local features; index into another file", where=self.store.address)
        self._properties = self.store.properties

    def adopt(self, mark: "Fingerprint") -> None:
        """Take what was embedded elsewhere: write its model down where there is none, or see that it is the same."""
        probes = {PROBE_TEXT: mark.text, PROBE_PICTURE: mark.picture}
        if not self.known:
            self.store.set_properties({"model": mark.name, "locals": mark.locals, **probes, **_made_now()})
        else:
            self._check_same(mark, probes)
            self.store.set_properties({k: v for k, v in probes.items() if self.name and k not in self._properties})
        self._properties = self.store.properties

    def _check_same(self, mark: "Fingerprint", probes: dict[str, str]) -> None:
        from diptych.search.models.embedder import same_probe

        known = self._properties
        if self.name and any(name in known and not same_probe(known[name], probe) for name, probe in probes.items()):
            raise DiptychError(
                f"made with {self.name!r}, whose vectors are not those of {mark.name!r}, which the parts were made "
                "with; import into another index",
                where=self.store.address,
            )
        if known.get("locals", "") != mark.locals:
            there, parts = ("with" if told else "without" for told in (known.get("locals"), mark.locals))
            raise DiptychError(
                f"made {there} local features, and the parts {parts}"
                + (" the same ones" if there == parts else "")
                + "; import into another index",
                where=self.store.address,
            )

    def use(self, embedder: "Embedder") -> None:
        """Take a model that is loaded already."""
        self._check(embedder, pictures=False)
        self._embedder = embedder

    @property
    def embedder(self) -> "Embedder":
        """The model, loaded on first use, and seen to be the one that the index was made with."""
        from diptych.search.models.embedder import load_embedder

        with self._lock:
            if self._embedder is None:
                if not self.name:
                    raise DiptychError(f"has {ELSEWHERE} and no model to embed with", where=self.store.address)
                self.use(load_embedder(self.name, self.device))
            assert self._embedder is not None
            return self._embedder

    @property
    def picture_embedder(self) -> "Embedder":
        """The same, and seen to make of a picture what it made when the index was filled."""
        with self._lock:
            embedder = self.embedder
            if not self._checked_pictures:
                self._check(embedder, pictures=True)
                self._checked_pictures = True
            return embedder

    def _check(self, embedder: "Embedder", pictures: bool) -> None:
        """See by a probe that the model is the one that was used before; write it down where it is the first."""
        from diptych.search.models.embedder import same_probe

        name = PROBE_PICTURE if pictures else PROBE_TEXT
        probe, known = embedder.probe(pictures), self._properties.get(name)
        if known is None and (pictures or not self.store.count()):
            self.store.set_properties({name: probe})
            self._properties[name] = probe
        elif known is not None and not same_probe(known, probe):
            raise DiptychError(
                f"the model {embedder.name!r} is no longer what it was when the index was made: "
                "its vectors differ; index again into another file",
                where=self.store.address,
            )


def _made_now() -> dict[str, str]:
    """Which version made an index, and when."""
    return {MADE_WITH: f"diptych {diptych.__version__}", MADE: datetime.now(UTC).isoformat(timespec="seconds")}


def locals_of(reranker: str) -> "LocalsSource":
    """What a re-ranking model needs of each picture."""
    from diptych.matchers.base import Matcher
    from diptych.search.models.embedder import LocalsSource

    source = LocalsSource.of(Matcher.from_pretrained(reranker).feature_source)
    if source is None:
        raise DiptychError(
            "reads pictures itself; only what a model over local features needs can be kept", where=reranker
        )
    return source
