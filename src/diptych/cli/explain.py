"""`diptych explain`."""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from PIL import Image

from diptych.cli.options import DeviceOption
from diptych.common.errors import DiptychError
from diptych.common.files import write_json, write_text, written_aside
from diptych.data.collection import Regions
from diptych.matchers.base import Matcher

SUFFIXES = (".html", ".png", ".json")
_SCENE = re.compile(r"scene-(\d+)-(\d+)")


def command(
    image: Annotated[str, typer.Argument(help="A picture, an id in --features, or a drawn scene such as scene-0-12.")],
    sentence: Annotated[str, typer.Argument(help="A sentence about it.")],
    model: Annotated[str, typer.Option(help="A run folder, a model folder, or a hub name.")],
    out: Annotated[Path, typer.Option(help="What to write: FILE.html, FILE.png or FILE.json.")],
    features: Annotated[Path | None, typer.Option(help="Local features, found there by the picture's id.")] = None,
    other_image: Annotated[str | None, typer.Option(help="Another picture, to see both pairs swapped.")] = None,
    other_sentence: Annotated[str | None, typer.Option(help="The other picture's sentence.")] = None,
    sentences: Annotated[Path | None, typer.Option(help="Lines of text: DivE's slots find their nearest here.")] = None,
    left_out: Annotated[bool, typer.Option(help="Leave out each word and region in turn.")] = True,
    device: DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print all arrays as one JSON object.")] = False,
) -> None:
    """Show why a picture and a sentence match: attention, gates, slots, pooling, and what the score would miss."""
    from diptych.cli.models import load_model
    from diptych.explain.compare import compare, comparison_sheet
    from diptych.explain.explain import explain
    from diptych.explain.html import explanation_page, picture_page
    from diptych.explain.sheet import explanation_sheet

    suffix = out.suffix.lower()
    if suffix not in SUFFIXES:
        raise DiptychError(f"--out: {out} is not known; expected a name that ends in {', '.join(SUFFIXES)}")
    if (other_image is None) != (other_sentence is None):
        raise DiptychError("--other-image and --other-sentence belong together; expected both or neither")
    lines = [] if sentences is None else _lines(sentences)
    matcher = load_model(model, device)
    subject = find(matcher, model, image, features)
    if other_image is not None and other_sentence is not None:
        both = [subject, find(matcher, model, other_image, features)]
        comparison = compare(matcher, [s.given for s in both], [sentence, other_sentence], left_out=left_out)
        told = comparison.to_json()
        if suffix != ".json":
            sheet = comparison_sheet(comparison, [s.shown() for s in both])
            title = f"{sentence} / {other_sentence}"
            _save(
                sheet,
                out,
                picture_page(title, sheet, "Both pictures with both sentences") if suffix == ".html" else None,
            )
    else:
        pair = explain(matcher, subject.given, sentence, left_out=left_out, sentences=lines)
        told = pair.to_json()
        if suffix == ".html":
            write_text(out, explanation_page(pair, subject.picture if subject.picture is not None else subject.blank()))
        elif suffix == ".png":
            _save(explanation_sheet(pair, subject.shown()), out, None)
    if suffix == ".json":
        write_json(out, told)
    print(f"wrote {out}", file=sys.stderr)
    if as_json:
        print(json.dumps(told, ensure_ascii=False))


@dataclass(frozen=True)
class PictureToExplain:
    """A picture to explain: what the matcher is given, and what is drawn on, where it is at hand."""

    given: Image.Image | Regions
    picture: Image.Image | None

    def blank(self) -> Image.Image | None:
        """Plain paper of the picture's size, where features say how large it was."""
        if not isinstance(self.given, Regions) or self.given.boxes is None or self.given.size is None:
            return None
        return Image.new("RGB", self.given.size, (200, 204, 214))

    def shown(self) -> Image.Image:
        """The picture, or plain paper."""
        shown = self.picture or self.blank()
        if shown is None:
            raise DiptychError(
                "the features have no boxes and there is no picture: choose --out FILE.json or FILE.html"
            )
        return shown


def find(matcher: Matcher, run: str, image: str, features: Path | None) -> PictureToExplain:
    """The picture with what the matcher takes of it.

    A file; with `features`, the row whose id is the file's path, name or stem; or a drawn scene by its id.
    """
    from diptych.data.open_picture import open_picture

    picture = open_picture(image) if Path(image).is_file() else None
    if features is not None:
        return PictureToExplain(_row(image, features), picture)
    if picture is not None:
        return PictureToExplain(picture, picture)
    scene = _SCENE.fullmatch(image)
    if scene is None:
        raise DiptychError("no such picture", where=image)
    return _drawn(matcher, run, int(scene[1]), int(scene[2]))


def _row(image: str, features: Path) -> Regions:
    from diptych.data.read import read_collection

    collection = read_collection(features)
    if collection.features is None:
        raise DiptychError("holds no local features", where=features)
    rows = {item.id: item.row for item in collection.items}
    for name in (image, Path(image).name, Path(image).stem):
        if (row := rows.get(name)) is not None:
            return collection.features[row]
    raise DiptychError(f"has no features of {image!r}; its ids look like {next(iter(rows))!r}", where=features)


def _drawn(matcher: Matcher, run: str, seed: int, index: int) -> PictureToExplain:
    from diptych.data.scenes import SceneFeatures, captioned, draw
    from diptych.training.data import ScenesConfig
    from diptych.training.recipe import load_run_recipe

    scene = captioned(seed, index).scene
    picture = draw(scene, 480)
    if matcher.takes_pictures:
        return PictureToExplain(picture, picture)
    kind = "boxes"
    if (Path(run) / "recipe.json").is_file():
        data = load_run_recipe(Path(run)).data
        kind = data.regions if isinstance(data, ScenesConfig) else kind
    return PictureToExplain(SceneFeatures([scene], "grid" if kind == "grid" else "boxes")[0], picture)


def _lines(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DiptychError(f"--sentences: {path} cannot be read: {error}") from None
    if not lines:
        raise DiptychError(f"--sentences: {path} is empty; expected one sentence a line")
    return lines


def _save(sheet: Image.Image, out: Path, page: str | None) -> None:
    if page is not None:
        write_text(out, page)
        return
    with written_aside(out) as aside:
        sheet.save(aside, "PNG")
