"""Every configuration that must pass the common tests: name -> config.

Each paper lists its own as `CASES`, in cases_<paper>.py or in its test file; whatever there is is taken.
"""

import re
from importlib import import_module
from pathlib import Path

from diptych.matchers.catalog import MatcherConfig

LISTS = re.compile(r"^CASES\b", re.MULTILINE)


def collect() -> dict[str, MatcherConfig]:
    """The cases of all papers; a name stands for one of them."""
    cases: dict[str, MatcherConfig] = {}
    for path in sorted(Path(__file__).parent.glob("*_*.py")):
        if path.name.startswith(("cases_", "test_")) and LISTS.search(path.read_text(encoding="utf-8")):
            more: dict[str, MatcherConfig] = import_module(f"tests.matchers.{path.stem}").CASES
            assert not cases.keys() & more.keys(), f"{path.name} lists a case that is there already"
            cases |= more
    return cases


CASES = collect()
