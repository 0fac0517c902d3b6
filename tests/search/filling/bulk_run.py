"""`diptych index` in small rounds: `python -m tests.search.filling.bulk_run ARGUMENTS`; to be killed."""

import sys

from diptych.cli.main import run
from diptych.search.filling import bulk, sync

if __name__ == "__main__":
    bulk.ROUND, sync.COMMIT_ENTRIES = 4, 4
    sys.exit(run(["index", *sys.argv[1:]]))
