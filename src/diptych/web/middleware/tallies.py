"""How many wrong tokens each client has sent: counted in the memory of one process, or in a file that several share."""

import sqlite3
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

# After so many seconds without a wrong token a client begins anew.
FORGET = 600.0
# Clients that are kept in mind; those that were quiet for longest are forgotten first.
MOST_CLIENTS = 4096
# A count that cannot be had is taken for a guesser's.
MANY = 1 << 20


class Tally(Protocol):
    """Counts wrong tokens by client, for so many clients."""

    def noted(self, name: str, now: float) -> int:
        """One more wrong token of a client; how many it has sent. now: seconds on a clock that all share."""


class MemoryTally:
    """Counts in memory."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def noted(self, name: str, now: float) -> int:
        """One more wrong token of a client; how many it has sent."""
        wrong, last = self._clients.pop(name, (0, now))
        wrong = 1 if now - last > FORGET else wrong + 1
        self._clients[name] = wrong, now
        while len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)
        return wrong

    def __len__(self) -> int:
        return len(self._clients)


class SharedTally:
    """Counts in an SQLite file, for all worker processes of a server together."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, 5.0, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA synchronous = OFF")  # it is forgotten with the server
        self._db.execute("CREATE TABLE IF NOT EXISTS clients (name TEXT PRIMARY KEY, wrong INTEGER, last REAL)")

    def noted(self, name: str, now: float) -> int:
        """One more wrong token of a client; how many it has sent."""
        try:
            wrong = self._db.execute(
                "INSERT INTO clients VALUES (?1, 1, ?2) ON CONFLICT (name) DO UPDATE SET "
                "wrong = CASE WHEN ?2 - last > ?3 THEN 1 ELSE wrong + 1 END, last = ?2 RETURNING wrong",
                (name, now, FORGET),
            ).fetchall()[0][0]
            if wrong == 1:
                self._db.execute(
                    "DELETE FROM clients WHERE name IN (SELECT name FROM clients ORDER BY last DESC, rowid DESC "
                    "LIMIT -1 OFFSET ?)",
                    (MOST_CLIENTS,),
                )
        except sqlite3.Error:
            return MANY
        return int(wrong)

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM clients").fetchone()[0])
