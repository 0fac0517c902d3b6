import fcntl
import os
import pty
import struct
import termios
import threading

import pytest

from diptych.cli.terminal_kind import answered, cells_of_terminal, way_of_terminal
from diptych.cli.terminal_pictures import Cells


@pytest.mark.parametrize(
    ("environment", "sixels", "way"),
    [
        ({"TERM": "xterm-kitty"}, False, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, False, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "ghostty"}, True, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, True, "iterm"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, False, "iterm"),
        ({"TERM": "foot"}, True, "sixel"),
        ({"TERM": "xterm-256color"}, False, "blocks"),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1", "TMUX": "x"}, False, "blocks"),
        ({"TERM": "screen", "TERM_PROGRAM": "iTerm.app"}, True, "sixel"),
        ({"TERM": "dumb"}, True, None),
        ({}, True, None),
    ],
)
def test_the_environment_says_what_a_terminal_is(environment: dict[str, str], sixels: bool, way: str | None) -> None:
    assert way_of_terminal(environment, lambda: sixels) == way


@pytest.mark.parametrize(
    ("said", "understood"), [(b"\x1b[?62;4;22c", b"62;4;22"), (b"typed\x1b[?6c", b"6"), (b"", b"")]
)
def test_a_terminal_is_asked(said: bytes, understood: bytes) -> None:
    here, terminal = pty.openpty()
    asked: list[bytes] = []

    def answer() -> None:
        asked.append(os.read(here, 16))
        if said:
            os.write(here, said)

    thread = threading.Thread(target=answer)
    thread.start()
    before = termios.tcgetattr(terminal)
    assert answered(terminal, 10 if said else 0.1) == understood
    assert termios.tcgetattr(terminal) == before
    thread.join()
    assert asked == [b"\x1b[c"]
    os.close(here)
    os.close(terminal)


def test_the_room_for_a_picture() -> None:
    here, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 40, 360, 180))
    assert cells_of_terminal(terminal) == Cells(40, 5, 9, 18)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    assert cells_of_terminal(terminal) == Cells()
    os.close(here)
    os.close(terminal)
    with open(os.devnull) as file:
        assert cells_of_terminal(file.fileno()) == Cells()
