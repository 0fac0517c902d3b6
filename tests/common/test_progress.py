import sys

import pytest
from rich.console import Console

from diptych.common import progress
from diptych.common.progress import is_shown


@pytest.mark.parametrize(
    ("terminal", "notebook", "widgets", "shown"),
    [(True, False, False, True), (False, False, True, False), (False, True, True, True), (False, True, False, False)],
)
def test_a_bar_is_drawn_at_a_terminal_and_in_a_notebook_that_can(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, notebook: bool, widgets: bool, shown: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(progress, "find_spec", lambda name: object() if widgets and name == "ipywidgets" else None)
    assert is_shown(Console(stderr=True, force_jupyter=notebook)) is shown
