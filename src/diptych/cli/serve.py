"""`diptych serve`."""

import json
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.completion import complete_model
from diptych.cli.config_file import ConfigOption
from diptych.cli.options import DeviceOption, IndexOption
from diptych.common.errors import DiptychError

if TYPE_CHECKING:
    from diptych.web.settings import ServerSettings


def command(
    index: IndexOption = None,
    host: Annotated[
        str, typer.Option(help="The address to listen at; any but this machine's own asks for the token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar="DIPTYCH_TOKEN", help="Who has it may add and delete; by default one is made and printed."),
    ] = None,
    host_name: Annotated[
        list[str] | None, typer.Option(help="Another name of the server, such as a proxy's; repeatable.")
    ] = None,
    rerank: Annotated[
        str | None,
        typer.Option(metavar="MODEL", autocompletion=complete_model, help="A model that can re-rank and explain."),
    ] = None,
    uploads: Annotated[Path | None, typer.Option(help="Where added pictures are kept; beside the index.")] = None,
    root: Annotated[
        list[Path] | None, typer.Option(help="Show pictures of this folder only; repeatable. All that were indexed.")
    ] = None,
    max_upload: Annotated[float, typer.Option(min=0.001, help="Most MiB of one request.")] = 20,
    max_pixels: Annotated[float, typer.Option(min=0.001, help="Most million pixels of one picture.")] = 50,
    originals: Annotated[
        bool, typer.Option("--originals/--no-originals", help="Whether files may be downloaded as they are.")
    ] = True,
    batch: Annotated[int, typer.Option(min=1, help="Most searches that go through the model together.")] = 32,
    queue: Annotated[int, typer.Option(min=1, help="Most searches that wait; more are told to come back.")] = 256,
    remember: Annotated[
        int, typer.Option(min=0, help="Most searches whose answers are kept until the index changes.")
    ] = 500,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which a request is given up.")] = 30,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that serve, each with its own models.")] = 1,
    device: DeviceOption = "auto",
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as one JSON object.")] = False,
) -> None:
    """Serve the page and the HTTP interface of an index, until Ctrl-C."""
    # Read when NumPy and torch are loaded, further below: several pieces of work at once must not fight over the cores.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, str(max(1, (os.cpu_count() or 1) // max(2, workers))))
    from diptych.search.index import Index
    from diptych.search.stores.address import default_index

    address: str | Path = default_index() if index is None else index
    if "://" not in str(address) and not Path(address).exists():
        raise DiptychError("there is no index; make one with `diptych index FOLDER`", where=address)
    try:
        import cryptography  # noqa: F401
        import fastapi  # noqa: F401
        import jinja2  # noqa: F401
        import prometheus_client  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise DiptychError(f"serving needs the package {error.name}; install diptych[serve]") from None
    from diptych.web.settings import MEBIBYTE, ServerSettings

    settings = ServerSettings(
        token=token or secrets.token_urlsafe(24),
        host=host,
        port=port,
        hosts=tuple(host_name or ()),
        rerank=rerank,
        uploads=uploads,
        roots=tuple(map(str, root or ())),
        max_upload=int(max_upload * MEBIBYTE),
        max_pixels=int(max_pixels * 1_000_000),
        batch=batch,
        queue=queue,
        timeout=timeout,
        originals=originals,
        remembered=remember,
        workers=workers,
    )
    with Index.open(address, device=device) as opened:

        def started(taken: ServerSettings) -> None:
            _tell(taken, len(opened), not token, as_json)

        if workers == 1:
            from diptych.web.run import run_server

            run_server(settings, opened, started)
        else:
            from diptych.web.workers import run_workers

            run_workers(settings, opened, device, started)
    print("stopped", file=sys.stderr)


def _tell(settings: "ServerSettings", entries: int, made: bool, as_json: bool) -> None:
    """Where it is, and the token where it was made here: whoever gave one knows it."""
    from diptych.web.settings import address_of

    address = address_of(settings)
    if as_json:
        shown = {"address": address, "entries": entries, "token": settings.token if made else None}
        print(json.dumps(shown), flush=True)
        return
    # Where the page needs the token, the address carries it.
    carried = f"?token={settings.token}" if made and not settings.loopback else ""
    print(f"{entries:,} entries at {address}{carried}", flush=True)
    if made:
        print(f"token for adding and deleting: {settings.token}", flush=True)
    if not settings.loopback:
        print("note: others can reach this address; put a proxy with TLS before it", file=sys.stderr)
