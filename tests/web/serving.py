"""A real server on a free port of this machine, over a small index; and clients of an application without one."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.settings import ServerSettings
from tests.search import tiny

TOKEN = "a-token-of-the-tests"


def small_index(folder: Path, model: str, pictures: int = 8, sentences: bool = True) -> Index:
    """Pictures `album/000.png` … and three sentences, indexed in `folder`."""
    album = tiny.fill(folder / "pictures" / "album", pictures)
    if sentences:
        (folder / "pictures" / "words.txt").write_text("two dog\na red boat\nsnow and grass\n")
    index = Index.create(folder / "index.db", model, device="cpu")
    columns: dict[str, dict[str, str | float]] = {
        str(album / f"{i:03d}.png"): {"stars": i % 5, "album": "holiday"} for i in range(pictures)
    }
    index.sync(folder / "pictures", what="both" if sentences else "pictures", metadata=columns)
    return index


def client(app: FastAPI, token: str | None = None, host: str = "127.0.0.1") -> TestClient:
    """A client in this process; errors that nobody expected are raised here."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return TestClient(app, base_url=f"http://{host}", headers=headers)


@contextmanager
def serving(index: Index, settings: ServerSettings | None = None, app: FastAPI | None = None) -> Iterator[str]:
    """A server in a thread; gives its address, without a slash at the end.

    settings: as they are, but for the port, which is a free one; their token is `TOKEN` by default
    app: an application to serve in place of one that is made from the index and the settings
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
        chosen = replace(settings or ServerSettings(token=TOKEN), port=port)
        app = app or create_app(chosen, index)
        config = uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="tests-server")
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise RuntimeError("the server did not start")
                time.sleep(0.01)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()
