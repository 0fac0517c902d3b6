"""`diptych features`."""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from diptych.cli.options import DeviceOption
from diptych.common.device import pick_device
from diptych.common.errors import DiptychError

if TYPE_CHECKING:
    from diptych.data.collection import Item
    from diptych.data.feature_file import FeatureFile


def command(
    images: Annotated[str, typer.Argument(help="Pictures: a folder, tars, or anything that `diptych data` reads.")],
    out: Annotated[Path, typer.Option(help="The feature file to write, or the folder with --format precomp.")],
    backbone: Annotated[
        str,
        typer.Option(help="efficientnet-lite0 to -lite2, a Hugging Face vision model or detector, or a saved matcher."),
    ] = "efficientnet-lite0",
    size: Annotated[
        int | None, typer.Option(help="Side of the resized picture; of a detector, its shortest edge.")
    ] = None,
    regions: Annotated[int | None, typer.Option(help="Regions a picture, of a detector (36 by default).")] = None,
    split: Annotated[str | None, typer.Option(help="Only this split of the data.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Pictures a step.")] = None,
    device: DeviceOption = "auto",
    precision: Annotated[
        Literal["half", "single"] | None,
        typer.Option(help="How the features are stored; half by default, single in a precomp folder."),
    ] = None,
    format: Annotated[
        Literal["file", "precomp"],
        typer.Option(help="One feature file, or the folder of arrays and captions that published code reads."),
    ] = "file",
    workers: Annotated[int | None, typer.Option(help="Threads that decode; one a core by default.")] = None,
    skip_bad: Annotated[bool, typer.Option(help="Go on without the pictures that cannot be read.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False,
) -> None:
    """Turn pictures into local features once; after a kill, the same command goes on where it stopped."""
    from diptych.data.feature_file import FeatureFile
    from diptych.data.feature_writer import FeatureWriter
    from diptych.data.read import read_collection
    from diptych.encoders.extract import describe, extract_features, load_extractor

    folder = out
    if format == "precomp":
        if out.exists():
            raise DiptychError("already there; remove it, or choose another --out", where=out)
        out = out.with_name(f"{out.name}.features")  # what is done is safe there until the folder is written
    precision = precision or ("single" if format == "precomp" else "half")
    collection = read_collection(images, split=split, skip_bad=skip_bad)
    extractor = load_extractor(backbone, size, regions).to(pick_device(device))
    source = describe(extractor, backbone, precision)
    wanted = {item.id for item in collection.items}
    problems = list(collection.problems)
    started = time.monotonic()
    if out.exists():
        file, new = FeatureFile(out), 0
        missing = wanted - set(file.ids)
        if file.source != source or not wanted >= set(file.ids) or (missing and not skip_bad):
            why = file.source.differences(source) or "other pictures"
            raise DiptychError(f"already there, and made with {why}; remove it, or choose another --out", where=out)
    else:
        with closing(FeatureWriter(out, source)) as writer:
            before = len(writer.done)
            strange = sorted(writer.done - wanted)
            if strange:
                raise DiptychError(
                    f"begun with other pictures, such as {strange[0]!r}; remove it to start again", where=writer.folder
                )
            if before:
                print(f"{out}: {before} of {len(wanted)} pictures were done; going on", file=sys.stderr)
            bad = extract_features(collection.items, extractor, writer, batch_size=batch_size, workers=workers)
            new = len(writer.done) - before
            problems += bad
            report(problems)
            if bad and not skip_bad:
                raise DiptychError(
                    f"{len(bad)} of {len(wanted)} pictures cannot be read; the others' features are kept in "
                    f"{writer.folder}: mend them and run again, or go on without them with --skip-bad"
                )
            file = writer.finish()
    seconds = time.monotonic() - started
    if format == "precomp":
        _finish_precomp(folder, collection.items, file, new, seconds, problems, as_json)
        return
    fewest, most = int(file.lengths.min()), int(file.lengths.max())
    if as_json:
        outcome = {
            "out": str(out), "pictures": len(file), "new": new, "skipped": [str(p) for p in problems],
            "regions": [fewest, most], "dim": file.dim, "precision": precision, "seconds": round(seconds, 3),
            "checksum": file.checksum,
        }  # fmt: skip
        print(json.dumps(outcome))
        return
    count = str(most) if fewest == most else f"{fewest} to {most}"
    rate = f", {new / seconds:.1f} pictures/s" if new else ", all done before"
    size_mb = out.stat().st_size / 1e6
    print(f"{out}: {len(file)} pictures of {count} x {file.dim} in {precision} precision, {size_mb:.1f} MB{rate}")


def _finish_precomp(
    folder: Path, items: "Sequence[Item]", file: "FeatureFile", new: int, seconds: float, problems: Sequence[object],
    as_json: bool,
) -> None:  # fmt: skip
    """Write the folder from the feature file, which then goes, and say what is in it."""
    from diptych.data.precomp_writer import write_precomp

    written = write_precomp(folder, items, file)
    regions, dim = int(file.lengths.max()), file.dim
    file.path.unlink()
    if as_json:
        outcome = {
            "out": str(folder), "pictures": len(file), "new": new, "skipped": [str(p) for p in problems],
            "regions": [regions, regions], "dim": dim, "seconds": round(seconds, 3),
            "splits": {name: {"pictures": n, "sentences": m} for name, (n, m) in written.items()},
        }  # fmt: skip
        print(json.dumps(outcome))
        return
    told = "; ".join(f"{name}: {n:,} pictures, {m:,} sentences" for name, (n, m) in written.items())
    print(f"{folder}: {told}; {regions} x {dim} a picture")


def report(problems: Sequence[object], most: int = 20) -> None:
    """List what is bad on standard error, the first ones in full."""
    for problem in problems[:most]:
        print(problem, file=sys.stderr)
    if len(problems) > most:
        print(f"… and {len(problems) - most} more", file=sys.stderr)
