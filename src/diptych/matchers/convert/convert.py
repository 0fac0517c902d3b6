"""An authors' checkpoint to a folder that `Matcher.from_pretrained` reads."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from diptych import __version__
from diptych.common.config import to_tree
from diptych.common.errors import DiptychError, nearest
from diptych.common.files import write_json
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher
from diptych.matchers.convert.camp import plan_camp
from diptych.matchers.convert.checkpoint import Checkpoint, read_checkpoint
from diptych.matchers.convert.dive import plan_dive
from diptych.matchers.convert.plan import COUNTER, Plan, land
from diptych.matchers.convert.scan import plan_scan
from diptych.matchers.convert.settings import Settings
from diptych.matchers.convert.sides import Words
from diptych.matchers.convert.vocabulary_pickle import read_vocabulary
from diptych.matchers.convert.vse import plan_vse_infinity, plan_vsepp

Planner = Callable[[Checkpoint, Settings, Words], Plan]
SOURCES: dict[str, tuple[str, Planner]] = {
    "vse++": ("VSE++ (Faghri et al., BMVC 2018)", plan_vsepp),
    "scan": ("SCAN (Lee et al., ECCV 2018)", plan_scan),
    "vse-infinity": ("VSE∞ (Chen et al., CVPR 2021)", plan_vse_infinity),
    "dive": ("DivE (Kim et al., CVPR 2023)", plan_dive),
    "camp": ("CAMP (Wang et al., ICCV 2019)", plan_camp),
}


@dataclass(frozen=True)
class Converted:
    """What was made of a checkpoint.

    settings: the authors' settings that were used, and where each came from
    unused: names of tensors that change no score
    """

    matcher: Matcher
    source: str
    file: str
    checksum: str
    settings: Mapping[str, str]
    unused: Sequence[str]
    notes: Sequence[str]

    @property
    def parameters(self) -> int:
        """How many numbers were learned."""
        return sum(p.numel() for p in self.matcher.parameters())

    def tree(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "source": self.source,
            "file": self.file,
            "checksum": self.checksum,
            "matcher": to_tree(self.matcher.config),
            "parameters": self.parameters,
            "settings": dict(self.settings),
            "unused": list(self.unused),
            "notes": list(self.notes),
        }


def convert(
    path: Path,
    source: str,
    vocabulary: Path | None = None,
    tokenizer: str = "bert-base-uncased",
    options: Mapping[str, Any] | None = None,
) -> Converted:
    """A matcher with the tensors of an authors' checkpoint, all of them accounted for.

    source: whose checkpoint it is, a key of SOURCES
    vocabulary: the words of a GRU encoder, JSON or pickle; tokenizer: the pieces of a BERT, a folder or a hub name
    options: settings of the authors, by their names, that the file does not hold
    """
    if source not in SOURCES:
        raise DiptychError(f"--from: {source!r} is no model that can be converted; {nearest(source, list(SOURCES))}")
    words = Words(None if vocabulary is None else read_vocabulary(vocabulary), tokenizer)
    checkpoint = read_checkpoint(path)
    settings = Settings(path, checkpoint.settings, options or {})
    plan = SOURCES[source][1](checkpoint, settings, words)
    settings.check_given()
    with TemporaryDirectory() as folder:
        for name, tree in plan.assets.items():
            write_json(Path(folder) / name, tree)
        matcher = build_matcher(plan.config, plan.tokenizer, assets=Path(folder)).eval()
    unused = land(plan, checkpoint, matcher)
    reasons = [f"`{name}…`: {why}." for name, why in plan.unused.items() if any(u.startswith(name) for u in unused)]
    unused = [name for name in unused if not name.endswith(COUNTER)]
    notes = (*plan.notes, *reasons)
    return Converted(matcher, source, path.name, checkpoint.checksum, settings.used, unused, notes)


def save_converted(converted: Converted, out: Path) -> None:
    """Write the folder, whole or not at all."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DiptychError("already there; expected a new folder, or an empty one", where=out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as aside:
        made = Path(aside) / out.name
        converted.matcher.save_pretrained(made, card=model_card(converted))
        os.replace(made, out)


def model_card(converted: Converted) -> str:
    """Markdown with the front matter that the hub reads: where the weights came from and what was deduced."""
    config = converted.matcher.config
    name, _ = SOURCES[converted.source]
    flat = _flatten(to_tree(config))
    legacy = [key for key, value in flat.items() if "legacy" in key and value]
    lines = [
        "---",
        "library_name: diptych",
        "pipeline_tag: zero-shot-image-classification",
        f"tags: [image-text-matching, {config.kind}]",
        "---",
        f"# {name}, converted",
        "",
        f"A `{config.kind}` matcher of pictures and sentences. Its weights were trained and published by the paper's "
        f"authors, whose licence holds; Diptych {__version__} only gave them new names.",
        "",
        "```python",
        "from diptych import Matcher",
        "",
        'matcher = Matcher.from_pretrained("this-folder")',
        "```",
        "",
        "## Source",
        "",
        f"- file: `{converted.file}`",
        f"- SHA-256: `{converted.checksum}`",
        f"- parameters: {converted.parameters:,}",
        f"- legacy behaviour: {', '.join(f'`{key}`' for key in legacy) or 'none'}",
        "",
        "## The authors' settings that were used",
        "",
        *([f"- `{key}`: {value}" for key, value in converted.settings.items()] or ["None."]),
        "",
        "## What the tensors and settings said",
        "",
        *(f"- `{key}`: {value!r}" for key, value in flat.items()),
    ]
    if converted.notes:
        lines += ["", "## To know", "", *(f"- {note}" for note in converted.notes)]
    return "\n".join([*lines, ""])


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
