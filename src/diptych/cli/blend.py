"""`diptych blend`."""

from pathlib import Path
from typing import Annotated

import typer

from diptych.common.errors import DiptychError


def command(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Runs, saved matchers, or `default`.")],
    out: Annotated[Path, typer.Option(help="The folder to write; new or empty.")],
    share: Annotated[
        list[float] | None, typer.Option(help="How much a model counts, in the models' order; all the same by default.")
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Write the weights in half precision.")] = False,
) -> None:
    """Average the weights of models of the same make, such as runs that began alike, into one."""
    import torch

    from diptych.training.blend import blend

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DiptychError(f"--out {out}: already there; expected a new folder, or an empty one")
    shares = share or [1.0] * len(models)
    matcher = blend(models, shares)
    total = sum(shares)
    parts = "\n".join(f"- {part / total:.3g} of {model}" for model, part in zip(models, shares, strict=True))
    card = f"# {out.name}\n\nA {matcher.title} whose weights are a mean:\n\n{parts}\n"
    matcher.save_pretrained(out, card, torch.float16 if half else None)
    print(f"{out}: the mean of {len(models)} models, {sum(p.numel() for p in matcher.parameters()):,} parameters")
