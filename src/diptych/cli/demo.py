"""`diptych demo`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.options import DeviceOption
from diptych.common.errors import DiptychError

if TYPE_CHECKING:
    from diptych.search.demo import Demo

PORT = 8000


def command(
    pictures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Your own pictures in place of the demo's.")
    ] = None,
    query: Annotated[list[str] | None, typer.Option(help="A sentence of your own to search with; repeatable.")] = None,
    model: Annotated[str, typer.Option(help="`default`, a run, a matcher's folder, or a CLIP model.")] = "default",
    device: DeviceOption = "auto",
    serve: Annotated[bool, typer.Option("--serve/--no-serve", help="Serve the page afterwards.")] = True,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help=f"The page's port; {PORT}, or any where that is taken.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Index some fifty photographs, or your own, search them with a few sentences, and serve the page."""
    from diptych.search.demo import run_demo

    demo = run_demo(pictures, model=model, queries=query or (), device=device, tell=_tell)
    with demo.index:
        for problem in demo.report.problems[:20]:
            _tell(str(problem))
        if as_json:
            print(json.dumps(demo.to_json(), ensure_ascii=False), flush=True)
        else:
            print(f"{demo.to_text()}\n\n{demo.seconds:.1f} seconds in all", flush=True)
            if demo.credits is not None:
                print(f"\n{demo.credits}", flush=True)
        if serve:
            _serve(demo, port, as_json)


def _serve(demo: "Demo", port: int | None, as_json: bool) -> None:
    """The page over the demo's index, until Ctrl-C."""
    try:
        from diptych.web.listening import bound
        from diptych.web.run import run_server
        from diptych.web.settings import ServerSettings, address_of
    except ImportError as error:
        raise DiptychError(f"the page needs the package {error.name}; install diptych[serve], or --no-serve") from None
    if port is None:
        try:
            with bound("127.0.0.1", PORT):
                port = PORT
        except DiptychError:
            port = 0

    def started(settings: ServerSettings) -> None:
        # In JSON, standard output has one object only.
        print(f"\nthe page is at {address_of(settings)} (Ctrl-C ends it)", file=sys.stderr if as_json else sys.stdout)
        sys.stdout.flush()

    run_server(ServerSettings(port=port, credits=demo.credits), demo.index, started)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
