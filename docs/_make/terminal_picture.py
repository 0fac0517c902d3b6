"""Makes docs/terminal.svg: what `diptych index`, `search` and `demo` really print, typed into a real shell.

    python docs/_make/terminal_picture.py

It indexes the demo's photographs into an index of its own, which is gone afterwards.
"""

import contextlib
import os
import pty
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from diptych.search.demo_pictures import demo_folder, have_pictures

OUT = Path(__file__).resolve().parent.parent / "terminal.svg"
COMMANDS = (
    "diptych index photos",
    'diptych search "a field of red tulips" --top 3',
    'diptych search "two dogs play in the snow" --top 1',
    'diptych search "tulips" - "a blue sky" --top 2',
    "diptych search ./photos/tropical-beach.jpg --top 3",
)
# Rich's own template fetches a font; this one takes what the reader has.
FORMAT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>A terminal: indexing a folder of photographs, and searching it</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def printed(command: str, folder: Path) -> str:
    """What a command prints on a terminal, run in a folder with an index of its own; its notes come last."""
    words = [sys.executable, "-m", "diptych", *shlex.split(command)[1:], "--index", "index.db"]
    here, terminal = pty.openpty()
    process = subprocess.Popen(words, cwd=folder, stdout=terminal, stderr=subprocess.PIPE, text=True)
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # it is closed when the command ends
        while some := os.read(here, 4096):
            shown += some
    os.close(here)
    notes = process.communicate()[1]
    if process.returncode:
        raise SystemExit(f"{command}: {notes}")
    return (shown.decode().replace("\r\n", "\n") + notes).rstrip().replace(f"{folder}/", "")


def main() -> None:
    """Run the commands, draw what they print."""
    console = Console(record=True, width=92, file=open("/dev/null", "w"))  # noqa: SIM115
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        (folder / "photos").mkdir()
        have_pictures()
        for picture in (path for path in demo_folder().rglob("*") if path.suffix in (".jpg", ".png")):
            shutil.copy(picture, folder / "photos")
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text(printed(command, folder)))
            console.print()
    OUT.write_text(console.export_svg(title="Diptych", code_format=FORMAT, unique_id="diptych"), encoding="utf-8")
    print(OUT)


if __name__ == "__main__":
    main()
