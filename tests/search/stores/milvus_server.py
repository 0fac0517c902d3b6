"""A real Milvus server for this machine alone: `python -m tests.search.stores.milvus_server FOLDER PORT WATCHED`.

The server listens on every address and has no setting against it. So it runs in a network namespace of its own, where
there is nothing but a loopback device, and this process carries bytes into it from a socket on the host's 127.0.0.1
(a socket stays in the namespace it was made in). Says `ready PORT` when the server answers; ends, and ends the server,
with the process WATCHED.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

MODULE = "tests.search.stores.milvus_server"
NEW_USER, NEW_NET = 0x10000000, 0x40000000
PATIENCE = 120.0
# The defaults are for clusters; these make small collections answer sooner.
SETTINGS = {
    "proxy.timeTickInterval": 20,
    "queryCoord.checkInterval": 100,
    "queryCoord.distPullInterval": 50,
    "common.session.ttl": 3,
    "log.level": "warn",
}


def start(folder: Path, port: int = 0, watched: int | None = None) -> tuple["subprocess.Popen[str]", int]:
    """Start a server that keeps its data in `folder`; the process that runs it, and the port on 127.0.0.1.

    RuntimeError says why it cannot run here.
    """
    log = folder.with_suffix(".log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE, str(folder), str(port), str(watched or os.getpid())],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,
    )
    log.close()
    assert process.stdout is not None
    answer = process.stdout.readline().split()
    if answer[:1] != ["ready"]:
        process.wait()
        raise RuntimeError(f"Milvus does not run here: {folder.with_suffix('.log').read_text()[-500:]}")
    return process, int(answer[1])


def stop(process: "subprocess.Popen[str]") -> None:
    """Stop a server that `start` started."""
    process.terminate()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def kill(process: "subprocess.Popen[str]") -> None:
    """End a server at once, as kill -9 does: it dies with the process that runs it."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def main() -> None:
    folder, port, watched = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    outside = socket.create_server(("127.0.0.1", port))
    leave_the_network()
    server, inside = start_server(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        print("ready", outside.getsockname()[1], flush=True)
        asyncio.run(carry(outside, inside, watched, server))
    finally:
        server.kill()
        server.wait()
        if not Path(f"/proc/{watched}").exists():
            shutil.rmtree(folder, ignore_errors=True)  # nobody is left who could ask for it


def leave_the_network() -> None:
    """Move this process into a network namespace that holds a loopback device and nothing else."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(NEW_NET) != 0:
        if libc.unshare(NEW_USER | NEW_NET) != 0:
            sys.exit(f"no network namespace of its own can be made: {os.strerror(ctypes.get_errno())}")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        set_flags, up_and_running = 0x8914, 0x41
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", up_and_running))


def start_server(folder: Path) -> tuple["subprocess.Popen[bytes]", int]:
    """Start the server of the `milvus` package, wait until it is well, and say its port in this namespace."""
    try:
        import milvus
    except ImportError:
        sys.exit("the package milvus==2.3.5 is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    config = milvus.MilvusServerConfig(data_dir=str(folder))
    for name, value in SETTINGS.items():
        config.set(name, value)
    for part in "rootCoord proxy queryCoord queryNode indexCoord indexNode dataCoord dataNode".split():
        config.set(f"{part}.ip", "127.0.0.1")
    config.resolve()
    programs = unpack(milvus)
    health = 9091
    environment = os.environ | {
        "DEPLOY_MODE": "STANDALONE",
        "METRICS_PORT": str(health),
        "MILVUS_RUN_DIR": str(folder / "run"),
        "LD_LIBRARY_PATH": f"{programs}:{os.environ.get('LD_LIBRARY_PATH', '')}",
    }
    die_with_parent = ctypes.CDLL(None).prctl
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(
            [str(programs / "milvus"), "run", "standalone"],
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: die_with_parent(1, signal.SIGKILL),
        )
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if server.poll() is not None:
            sys.exit(f"the server ended with status {server.returncode}: {(folder / 'server.log').read_text()[-400:]}")
        with (
            contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError),
            urllib.request.urlopen(f"http://127.0.0.1:{health}/healthz", timeout=5) as answer,
        ):
            if b"OK" in answer.read():
                return server, int(config.get("proxy_port"))
        time.sleep(0.1)
    server.kill()
    sys.exit(f"the server was not well after {PATIENCE:.0f} seconds")


def unpack(milvus: object) -> Path:
    """The folder with the server's program and libraries, unpacked once a user."""
    folder = Path(tempfile.gettempdir()) / f"diptych-milvus-{milvus.__version__}-{os.getuid()}"  # type: ignore[attr-defined]
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        milvus._initialize_data_files(str(folder))  # type: ignore[attr-defined]
    return folder / "bin"


async def carry(outside: socket.socket, inside: int, watched: int, server: "subprocess.Popen[bytes]") -> None:
    """Pass connections on to the server until the watched process, or the server, is gone."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 18):
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", inside)
        except ConnectionError:
            writer.close()
            return
        await asyncio.gather(copy(reader, forth), copy(back, writer))

    async with await asyncio.start_server(accept, sock=outside):
        while server.poll() is None and Path(f"/proc/{watched}").exists():
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    main()
