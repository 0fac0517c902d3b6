"""Syncs a folder into a store: `python -m tests.search.filling.killed_sync FOLDER STORE SECONDS`; to be killed."""

import sys
import time
from collections.abc import Iterable, Iterator

from diptych.search.filling import sync as syncing
from diptych.search.filling.new_entry import NewEntry, Outcome
from diptych.search.filling.walk import Choice, roots_of
from diptych.search.stores.address import open_store
from diptych.search.stores.store import Layout
from tests.search.filling.fakes import DIM, FakeEmbed


def main(folder: str, address: str, seconds: float) -> None:
    syncing.COMMIT_ENTRIES = 5
    fake = FakeEmbed()

    def embed(entries: Iterable[NewEntry]) -> Iterator[list[Outcome]]:
        for outcomes in fake(entries):
            time.sleep(seconds)
            yield outcomes

    store = open_store(address, Layout(DIM))
    print("ready", flush=True)
    report = syncing.sync(store, roots_of([folder]), lambda: embed, Choice("both", archives=True), {})
    store.close()
    print("done", len(fake.keys), report.added, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
