"""Load on `diptych serve`: many clients on this machine at once, with and without batches, and several processes.

    python benchmarks/serve.py --seconds 120 --workers 2

starts the server over an index of made-up vectors and drawn pictures, and lets 64 clients ask one thing after another,
each without a pause: of a thousand requests 880 search with a sentence, 30 with a picture, 85 get a small picture and 5
an explanation. Then the same with `--workers 2`, where two processes answer, and with `--batch 1`, where every search
goes through the model alone. With `--queue 16` fewer searches may wait than there are clients: those that are refused
come back after the seconds that they are told, and how many there were is told too. Of each server there is also the
time from its start to its first answer, and of several processes how long one that was killed is missing.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

# Of a thousand requests: so many of each kind.
SHARES = {"sentence": 880, "picture": 30, "thumbnail": 85, "explain": 5}
THINGS = "dog cat boat house tree child man woman car horse bird bridge street beach mountain table flower".split()
PLACES = "snow grass water rain sunlight sand fog a-forest a-kitchen a-station the-evening the-city".split()
DEEDS = "runs sits sleeps waits plays stands jumps eats looks-up turns-round falls swims".split()
KINDS_OF = "red blue small large old young white black wooden wet quiet broken".split()


@dataclass
class Tally:
    """Latencies in seconds by kind, and everything that was not 200."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in SHARES})
    errors: dict[str, int] = field(default_factory=dict)
    refused: int = 0

    def note(self, kind: str, status: int, seconds: float) -> None:
        """One answer."""
        if status == 200:
            self.seconds[kind].append(seconds)
        elif status == 503:
            self.refused += 1
        else:
            name = f"{kind} {status}"
            self.errors[name] = self.errors.get(name, 0) + 1

    def figures(self, wall: float) -> dict[str, Any]:
        """Requests a second and percentiles, of each kind and of all."""
        rows = {}
        every = [second for some in self.seconds.values() for second in some]
        for kind, some in (*self.seconds.items(), ("all", every)):
            if some:
                p50, p95, p99 = (round(1000 * float(value), 1) for value in np.percentile(some, [50, 95, 99]))
                rows[kind] = {"requests": len(some), "a second": round(len(some) / wall, 1),
                              "p50": p50, "p95": p95, "p99": p99, "most": round(1000 * max(some), 1)}  # fmt: skip
        return {"latency in ms": rows, "refused (503)": self.refused, "errors": self.errors}


class Client:
    """One connection that is kept, as a browser keeps it."""

    def __init__(self, address: str) -> None:
        place = urlsplit(address)
        self.host, self.port = place.hostname or "127.0.0.1", place.port or 80
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.come_back = 0.0

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> tuple[int, bytes]:
        """Status and body of the answer."""
        if self.streams is None:
            self.streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self.streams
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
        if body:
            head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"\r\n" + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in answer[1:])}
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        self.come_back = float(headers.get("retry-after", "0"))
        if headers.get("connection", "").lower() == "close":
            await self.close()
        return int(answer[0].split()[1]), content

    async def close(self) -> None:
        """Hang up; the next question connects again."""
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


def sentence(chance: random.Random) -> str:
    words = [chance.choice(KINDS_OF), chance.choice(THINGS), chance.choice(DEEDS), "in", chance.choice(PLACES)]
    return "a " + " ".join(words[chance.randrange(2) :]).replace("-", " ")


def model_for(name: str | None, folder: Path) -> str:
    """The model of the index: the one that was named, the shipped one, or one that was never trained."""
    from diptych.common.model_place import shipped_folder
    from diptych.encoders.sources import text_source

    if name is not None:
        return name
    if shipped_folder("default") is not None:
        return "default"
    from diptych.data.tokens import PieceTokenizer
    from diptych.encoders.images import PixelConfig
    from diptych.encoders.texts import TransformerConfig
    from diptych.matchers.catalog import build_matcher
    from diptych.matchers.vse import VSEConfig

    image, text = PixelConfig(backbone="efficientnet-lite0"), TransformerConfig(name="minilm")
    tokenizer = PieceTokenizer.load(text_source("minilm"), 64)
    build_matcher(VSEConfig(dim=512, image=image, text=text), tokenizer).save_pretrained(folder / "untrained")
    return str(folder / "untrained")


def make_index(folder: Path, model: str, count: int) -> Path:
    """Vectors at random, each with a picture of its own name; a hundred of these differ."""
    from PIL import Image

    from diptych.search.index import Index

    chance = np.random.default_rng(0)
    pictures = folder / "pictures"
    pictures.mkdir()
    for number in range(count):
        path = pictures / f"{number:06d}.jpg"
        if number < 100:
            small = chance.integers(0, 256, (12, 16, 3), dtype=np.uint8)
            Image.fromarray(small).resize((1024, 768), Image.Resampling.BICUBIC).save(path, quality=88)
        else:
            os.link(pictures / f"{number % 100:06d}.jpg", path)
    with Index.create(folder / "index.db", model, device="cpu") as index:
        layout = index.store.layout
        vectors = chance.standard_normal((count, layout.set_size, layout.dim)).astype(np.float32)
        index.add_vectors([str(pictures / f"{number:06d}.jpg") for number in range(count)], vectors)
        index.prepare()
    return folder / "index.db"


def form(data: bytes) -> tuple[bytes, str]:
    head = (
        b'--edge\r\nContent-Disposition: form-data; name="file"; filename="x.jpg"\r\nContent-Type: image/jpeg\r\n\r\n'
    )
    return head + data + b"\r\n--edge--\r\n", "multipart/form-data; boundary=edge"


async def load(address: str, clients: int, seconds: float, warm: float, pictures: list[bytes]) -> tuple[Tally, float]:
    """All clients at once, each with one request at a time; what begins in the first `warm` seconds is not counted."""
    first = Client(address)
    ids: list[str] = []
    for number in range(8):
        _, body = await first.ask("GET", f"/api/search?q=a+dog+{number}&top=100")
        ids += [result["id"] for result in json.loads(body)["results"]]
    await first.close()
    tally = Tally()
    begin = time.perf_counter() + warm
    end = begin + seconds

    async def work(number: int) -> None:
        chance, client = random.Random(number), Client(address)
        asks: dict[str, Callable[[], Awaitable[tuple[int, bytes]]]] = {
            "sentence": lambda: client.ask("GET", f"/api/search?q={quote(sentence(chance))}"),
            "picture": lambda: client.ask("POST", "/api/search/picture", *form(chance.choice(pictures))),
            "thumbnail": lambda: client.ask("GET", f"/pictures/{chance.choice(ids)}?size=320"),
            "explain": lambda: client.ask(
                "GET", f"/api/explain?id={chance.choice(ids)}&sentence={quote(sentence(chance))}"
            ),
        }
        while (started := time.perf_counter()) < end:
            kind = chance.choices(list(SHARES), list(SHARES.values()))[0]
            try:
                async with asyncio.timeout(60):
                    status, _ = await asks[kind]()
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                await client.close()
                tally.errors[f"{kind} {type(error).__name__}"] = (
                    tally.errors.get(f"{kind} {type(error).__name__}", 0) + 1
                )
                continue
            if started >= begin:
                tally.note(kind, status, time.perf_counter() - started)
            if status == 503:
                await asyncio.sleep(client.come_back)
        await client.close()

    await asyncio.gather(*map(work, range(clients)))
    return tally, time.perf_counter() - begin


async def figures_of(address: str) -> dict[str, str]:
    """What the server tells Prometheus, by name and labels."""
    client = Client(address)
    _, body = await client.ask("GET", "/metrics")
    await client.close()
    return dict(line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#"))


async def missing(address: str, supervisor: int, workers: int) -> float:
    """Kill a worker: the seconds until there are as many as before."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    own = [int(pid) for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(own[0], signal.SIGKILL)
    started = time.perf_counter()
    await asyncio.sleep(0.5)
    while float((await figures_of(address))["diptych_workers"]) < workers:
        await asyncio.sleep(0.1)
    return time.perf_counter() - started


def measure(
    given: argparse.Namespace, index: Path, seconds: float, batch: int = 32, workers: int = 1
) -> dict[str, Any]:
    """One server from its start to its end."""
    command = [sys.executable, "-m", "diptych", "serve", "--index", str(index), "--port", "0", "--device", "cpu"]
    command += ["--remember", "0"]  # sentences that come twice shall take their time twice
    command += ["--batch", str(batch), "--workers", str(workers), "--queue", str(given.queue), "--json"]
    begun = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    more: dict[str, Any] = {}
    try:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["address"]
        asyncio.run(Client(address).ask("GET", "/api/search?q=a+dog"))
        more["seconds to the first answer"] = round(time.perf_counter() - begun, 1)
        pictures = [(index.parent / "pictures" / f"{number:06d}.jpg").read_bytes() for number in range(20)]
        tally, wall = asyncio.run(load(address, given.clients, seconds, given.warm, pictures))
        named = asyncio.run(figures_of(address))
        if workers > 1 and Path("/proc").exists():
            again = asyncio.run(missing(address, server.pid, workers))
            more["seconds without a killed worker"] = round(again, 1)
        server.send_signal(signal.SIGTERM)
        ended = server.wait(30)
    finally:
        server.kill()
        server.wait()
    count, total = (float(named[f'diptych_batch_size_{what}{{lane="search"}}']) for what in ("count", "sum"))
    return {
        **tally.figures(wall),
        "seconds": round(wall, 1),
        "mean batch": round(total / count, 2),
        "server's memory in MiB": round(float(named["process_resident_memory_bytes"]) / 2**20),
        **more,
        "exit status": ended,
    }


def show(name: str, figures: dict[str, Any]) -> None:
    print(f"\n{name}: {figures['seconds']} s, mean batch {figures['mean batch']}, errors {figures['errors'] or 'none'}")
    names = (
        "refused (503)",
        "server's memory in MiB",
        "seconds to the first answer",
        "seconds without a killed worker",
    )
    print("  " + ", ".join(f"{name}: {figures[name]:,}" for name in names if name in figures))
    print(f"  {'':10} {'requests':>9} {'a second':>9} {'p50 ms':>9} {'p95 ms':>9} {'p99 ms':>9} {'most ms':>9}")
    for kind, row in figures["latency in ms"].items():
        print(f"  {kind:10} " + " ".join(f"{value:>9,}" for value in row.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--baseline-seconds", type=float, help="of the server without batches; as long by default")
    parser.add_argument("--workers", type=int, default=2, help="processes of the second server; 1 leaves it out")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--queue", type=int, default=256, help="most searches that wait")
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--model", help="the shipped one where there is one, else one that was never trained")
    parser.add_argument("--warm", type=float, default=3, help="seconds at the start that are not counted")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    if not 1 <= given.clients <= 512 or not 0 < given.seconds <= 3600 or not 1 <= given.entries <= 100_000:
        parser.error("expected 1 to 512 clients, up to an hour and up to 100,000 entries")
    if not 1 <= given.workers <= 64 or given.queue < 1:
        parser.error("expected 1 to 64 workers, and a queue of 1 or more")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        model = model_for(given.model, place)
        index = make_index(place, model, given.entries)
        told: dict[str, Any] = {"model": Path(model).name, "entries": given.entries, "clients": given.clients,
                                "cores": os.cpu_count()}  # fmt: skip
        told["batched"] = measure(given, index, given.seconds)
        if given.workers > 1:
            told[f"{given.workers} processes"] = measure(given, index, given.seconds, workers=given.workers)
        seconds = given.seconds if given.baseline_seconds is None else given.baseline_seconds
        if seconds > 0:
            told["one by one"] = measure(given, index, seconds, batch=1)
    if given.json:
        print(json.dumps(told))
        return
    print(f"{given.clients} clients, {given.entries:,} entries, model {told['model']}, {told['cores']} cores")
    for name, figures in told.items():
        if isinstance(figures, dict):
            show(name, figures)


if __name__ == "__main__":
    main()
