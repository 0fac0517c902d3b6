"""`diptych scenes`: draw scenes with sentences into a folder."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from diptych.common.errors import DiptychError


def command(
    out: Annotated[Path, typer.Argument(help="Folder for pictures, captions and truth; new, empty, or begun before.")],
    count: Annotated[int, typer.Option(help="How many scenes.")] = 1000,
    seed: Annotated[int, typer.Option(help="Scenes of one seed are always the same.")] = 0,
    size: Annotated[int, typer.Option(help="Width and height of a picture in pixels.")] = 96,
    splits: Annotated[
        str, typer.Option(help="Train, val and test: three parts that sum to 1, or three numbers that sum to COUNT.")
    ] = "0.8,0.1,0.1",
    near_misses: Annotated[
        int, typer.Option(help="How many near-miss pairs to write: two pictures, two sentences, one difference.")
    ] = 0,
    sheet: Annotated[
        Path | None, typer.Option(help="Also write a contact sheet (png) of the first 20 scenes and their sentences.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as one JSON object.")] = False,
) -> None:
    """Draw scenes with sentences, boxes and near misses, from a seed."""
    from diptych.common.files import written_aside
    from diptych.data.scenes import captioned_scenes
    from diptych.data.scenes.collection import SPLITS, split_counts
    from diptych.data.scenes.sheet import contact_sheet
    from diptych.data.scenes.write import write_scenes

    parts = _numbers(splits)
    if sheet is not None and sheet.suffix.lower() != ".png":
        raise DiptychError(f"--sheet: {sheet} is not possible; expected a name that ends in .png")
    write_scenes(out, count, seed, parts, size, near_misses)
    if sheet is not None:
        entries = [(s.scene, [c.text for c in s.captions]) for s in captioned_scenes(min(count, 20), seed)]
        with written_aside(sheet) as aside:
            contact_sheet(entries).save(aside, "PNG")
    counts = dict(zip(SPLITS, split_counts(count, parts), strict=True))
    summary = {
        "folder": str(out),
        "pictures": count,
        "sentences": 5 * count,
        "splits": counts,
        "near_misses": near_misses,
        "sheet": None if sheet is None else str(sheet),
    }
    if as_json:
        print(json.dumps(summary))
        return
    shown = ", ".join(f"{number:,} {name}" for name, number in counts.items())
    print(f"{out}: {count:,} pictures ({shown}) with five sentences each")
    if near_misses:
        print(f"{out}: {near_misses:,} near-miss pairs (split near-miss)")
    if sheet is not None:
        print(f"{sheet}: contact sheet", file=sys.stderr)


def _numbers(splits: str) -> list[float]:
    try:
        return [float(part) for part in splits.split(",")]
    except ValueError:
        raise DiptychError(
            f"--splits: {splits!r} is not possible; expected three numbers such as 0.8,0.1,0.1"
        ) from None
