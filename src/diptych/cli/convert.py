"""`diptych convert`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from diptych.common.errors import DiptychError


def command(
    file: Annotated[Path, typer.Argument(help="A checkpoint as the authors published it.")],
    source: Annotated[str, typer.Option("--from", help="vse++, scan, vse-infinity, dive or camp.")],
    out: Annotated[Path, typer.Option(help="The folder to write; new or empty.")],
    vocabulary: Annotated[
        Path | None, typer.Option(help="The words of a GRU model: JSON, or a pickle, which is read but never run.")
    ] = None,
    tokenizer: Annotated[
        str, typer.Option(help="The tokenizer of a BERT model, a folder or a hub name.")
    ] = "bert-base-uncased",
    module: Annotated[
        str | None,
        typer.Option(help="CAMP's module: cross_attention, gate_fusion or gate_fusion_new; the tensors tell it too."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A setting of the authors, by their name, that the file does not hold, such as cross_attn=i2t.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False,
) -> None:
    """Turn an authors' checkpoint into a Diptych folder; nothing inside the file is run."""
    from diptych.matchers.convert.convert import convert, save_converted
    from diptych.matchers.convert.settings import parse_options

    options = parse_options(option or [])
    if module is not None:
        if source != "camp":
            raise DiptychError(f"--module: is for --from camp; got --from {source}")
        options["measure"] = module
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DiptychError(f"--out {out}: already there; expected a new folder, or an empty one")
    converted = convert(file, source, vocabulary, tokenizer, options)
    save_converted(converted, out)
    if as_json:
        print(json.dumps({"out": str(out), **converted.tree()}, ensure_ascii=False))
        return
    print(f"{out}: a {converted.matcher.config.kind} matcher of {converted.parameters:,} parameters")
    print(f"from {file} (SHA-256 {converted.checksum})")
    for name, value in converted.settings.items():
        print(f"  {name}: {value}")
    for note in converted.notes:
        print(f"  {note}")
