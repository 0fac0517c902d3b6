"""How the server runs: where it listens, who may do what, and how much of everything it takes."""

import ipaddress
import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.common.user_folders import data_folder

MEBIBYTE = 1 << 20
_TOKEN = re.compile(r"[!-~]{8,256}")


@dataclass(frozen=True)
class ServerSettings:
    """What `diptych serve` is told; every limit has a default that suits one machine.

    token: who has it may add and delete, and read where the address is not this machine's own; made where none is given
    hosts: further names that the server is known by, such as the one of a reverse proxy
    rerank: a re-ranking model, or none
    uploads: where added pictures are kept; beside the index by default
    roots: folders whose pictures may be shown; by default those that were indexed
    max_upload: most bytes of one request; max_pixels: most pixels of one picture
    batch: most queries that are embedded together; 1 is one by one; batch_wait: seconds in which they are gathered
    queue: most searches that wait; further ones are told to come back
    timeout: seconds after which a request is given up
    originals: whether the files of pictures may be had as they are, with all that is written in them
    remembered: most searches whose answers are kept until the index changes; 0 keeps none
    credits: a line that the page shows about where its pictures come from
    workers: processes that serve; each has its share of the limits on what may wait
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    hosts: tuple[str, ...] = ()
    rerank: str | None = None
    uploads: Path | None = None
    roots: tuple[str, ...] = ()
    max_upload: int = 20 * MEBIBYTE
    max_pixels: int = 50_000_000
    batch: int = 32
    batch_wait: float = 0.003
    queue: int = 256
    timeout: float = 30.0
    originals: bool = True
    remembered: int = 500
    credits: str | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.token):
            raise DiptychError("token: expected 8 to 256 letters, digits and signs without spaces")
        for name in ("max_upload", "max_pixels", "batch", "queue", "workers"):
            if getattr(self, name) < 1:
                raise DiptychError(f"expected at least 1, got {getattr(self, name)}", where=name.replace("_", " "))
        if self.remembered < 0:
            raise DiptychError(f"expected 0 or more, got {self.remembered}", where="remembered")
        if self.timeout <= 0 or self.batch_wait < 0:
            raise DiptychError("timeout: expected more than 0 seconds, and 0 or more to gather a batch")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def share(self, most: int) -> int:
        """What one worker may have of something that all together may have so many of.

        >>> ServerSettings(workers=3).share(16), ServerSettings(workers=3).share(2)
        (5, 1)
        """
        return max(1, most // self.workers)


def cores_each(workers: int = 1) -> int:
    """The cores that one piece of work may take: several pieces, and the server itself, share them all."""
    return max(1, (os.cpu_count() or 1) // max(2, workers))


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine itself."""
    bare = host.strip("[]").lower().rstrip(".")
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def uploads_beside(address: str) -> Path:
    """Where added pictures are kept by default: a folder beside the index, or in the user's data folder."""
    if "://" in address:
        return data_folder() / "uploads"
    path = Path(os.path.abspath(address))
    return path.with_name(path.name.removesuffix(".db") + ".uploads")


def uploads_of(settings: ServerSettings, address: str) -> Path:
    """Where the pictures that are added to an index are kept."""
    return Path(os.path.abspath(settings.uploads or uploads_beside(address)))


def address_of(settings: ServerSettings) -> str:
    """Where a browser on this machine finds the server."""
    anywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}
    host = anywhere.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{settings.port}/"
