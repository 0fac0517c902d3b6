"""What a terminal can draw: told by its environment, or asked of the terminal itself."""

import os
import re
import select
import time
from collections.abc import Callable, Mapping

from diptych.cli.terminal_pictures import Cells, Way

KITTY, ITERM = frozenset({"kitty", "ghostty"}), frozenset({"iTerm.app", "WezTerm", "mintty", "rio"})
# "What are you?"; a terminal that draws sixels has 4 in its answer.
QUESTION, ANSWER = b"\x1b[c", re.compile(rb"\x1b\[\?([\d;]*)c")
PATIENCE = 0.3


def way_of_terminal(environment: Mapping[str, str], draws_sixels: Callable[[], bool]) -> Way | None:
    """How to show a picture; None where the terminal shows no colours either.

    draws_sixels: asks the terminal; called only where the environment does not say
    """
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if term in ("", "dumb", "linux"):
        return None
    # Within a multiplexer the variables are those of the terminal around it, which the sequences would not reach.
    if "TMUX" not in environment and not term.startswith(("screen", "tmux")):
        if term == "xterm-kitty" or "KITTY_WINDOW_ID" in environment or program in KITTY:
            return "kitty"
        if program in ITERM or environment.get("LC_TERMINAL") == "iTerm2":
            return "iterm"
    return "sixel" if draws_sixels() else "blocks"


def terminal_draws_sixels(patience: float = PATIENCE) -> bool:
    """Ask the terminal of this process; no where there is none, or no answer in time."""
    try:
        import termios  # noqa: F401

        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except (ImportError, OSError):
        return False
    try:
        return b"4" in answered(terminal, patience).split(b";")
    finally:
        os.close(terminal)


def answered(terminal: int, patience: float) -> bytes:
    """The numbers that a terminal says of itself; empty without an answer. What it says is not shown on it."""
    import termios
    import tty

    try:
        before = termios.tcgetattr(terminal)
    except termios.error:
        return b""
    try:
        tty.setcbreak(terminal, termios.TCSANOW)
        os.write(terminal, QUESTION)
        said, end = b"", time.monotonic() + patience
        while (left := end - time.monotonic()) > 0 and select.select([terminal], [], [], left)[0]:
            said += os.read(terminal, 64)
            if (match := ANSWER.search(said)) is not None:
                return match[1]
        return b""
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def cells_of_terminal(descriptor: int) -> Cells:
    """The room for a picture: at most half of the window's height, with its characters' size where it says so."""
    room = Cells()
    try:
        import fcntl
        import struct
        import termios

        packed = fcntl.ioctl(descriptor, termios.TIOCGWINSZ, bytes(8))
        rows, columns, width, height = struct.unpack("HHHH", packed)
    except (ImportError, OSError):
        return room
    if not rows or not columns:
        return room
    size = (width // columns, height // rows) if width and height else (room.width, room.height)
    return Cells(min(room.columns, columns), min(room.rows, max(2, rows // 2)), *(max(1, side) for side in size))
