"""Statements on where things are in a picture, true or false: Visual Spatial Reasoning and files like it."""

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path

from diptych.common.errors import DiptychError

# The relations of Visual Spatial Reasoning (Liu, Emerson and Collier, TACL 2023), in the groups of its paper.
GROUPS: dict[str, tuple[str, ...]] = {
    "topological": (
        "connected to", "detached from", "has as a part", "part of", "contains", "within", "at", "on", "in", "with",
        "surrounding", "among", "consists of", "out of", "between", "inside", "outside", "touching",
    ),
    "projective": (
        "on top of", "beneath", "beside", "behind", "left of", "right of", "under", "in front of", "below", "above",
        "over", "in the middle of",
    ),
    "adjacency": (
        "adjacent to", "alongside", "at the side of", "at the right side of", "at the left side of", "attached to",
        "at the back of", "ahead of", "against", "at the edge of",
    ),
    "proximity": ("by", "close to", "near", "far from", "far away from"),
    "directional": (
        "off", "past", "toward", "down", "away from", "along", "around", "into", "across", "across from", "through",
        "down from",
    ),
    "orientation": ("facing", "facing away from", "parallel to", "perpendicular to"),
}  # fmt: skip
OTHER = "other"

# What cannot hold of two things where the first does; left out where both may (beside, in the middle of).
OPPOSITES: dict[str, str] = {
    "on": "under",
    "on top of": "under",
    "above": "below",
    "over": "under",
    "under": "above",
    "beneath": "on top of",
    "below": "above",
    "in front of": "behind",
    "behind": "in front of",
    "at the back of": "in front of",
    "ahead of": "behind",
    "left of": "right of",
    "right of": "left of",
    "at the left side of": "at the right side of",
    "at the right side of": "at the left side of",
    "in": "outside",
    "inside": "outside",
    "within": "outside",
    "outside": "inside",
    "into": "out of",
    "out of": "into",
    "near": "far from",
    "close to": "far from",
    "by": "far from",
    "next to": "far from",
    "touching": "far from",
    "adjacent to": "far from",
    "against": "far from",
    "far from": "near",
    "far away from": "close to",
    "away from": "close to",
    "facing": "facing away from",
    "facing away from": "facing",
    "parallel to": "perpendicular to",
    "perpendicular to": "parallel to",
    "attached to": "detached from",
    "connected to": "detached from",
    "detached from": "attached to",
}


@dataclass(frozen=True)
class PictureStatement:
    """A sentence on a picture of COCO, given by its number, and whether it is true."""

    picture: int
    text: str
    true: bool
    relation: str

    @property
    def group(self) -> str:
        """The group of relations that this one belongs to."""
        return next((group for group, relations in GROUPS.items() if self.relation in relations), OTHER)

    @property
    def opposite(self) -> str | None:
        """The sentence with the opposite relation; none where the relation has none, or is not said once."""
        instead = OPPOSITES.get(self.relation)
        pattern = re.compile(rf"\b{re.escape(self.relation)}\b")
        if instead is None or len(pattern.findall(self.text)) != 1:
            return None
        return pattern.sub(instead, self.text)


def read_statements(path: Path) -> list[PictureStatement]:
    """Lines of JSON, plain or gzipped: {"id": 42, "statement": "The cat is under the bed.", "true": false, ...}.

    Each also names its "relation", as the sentence says it ("under").
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DiptychError(f"cannot be read: {error}", where=path) from None
    statements = [_statement(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not statements:
        raise DiptychError("holds no statements", where=path)
    return statements


def _statement(line: str, where: str) -> PictureStatement:
    try:
        tree = json.loads(line)
    except json.JSONDecodeError as error:
        raise DiptychError(f"expected a line of JSON: {error}", where=where) from None
    wanted = {"id": int, "statement": str, "true": bool, "relation": str}
    for key, kind in wanted.items():
        value = tree.get(key) if isinstance(tree, dict) else None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise DiptychError(f"{key}: expected {_NAMES[kind]}, found {json.dumps(value)}", where=where)
    return PictureStatement(tree["id"], tree["statement"], tree["true"], tree["relation"])


_NAMES = {int: "a number", str: "a text", bool: "true or false"}
