"""Results shown as pictures in a terminal that can."""

import os
import sys
from typing import Literal

from diptych.common.errors import DiptychError

PreviewName = Literal["auto", "kitty", "iterm", "sixel", "blocks"]


class Preview:
    """Shows pictures under their lines; nothing where standard output is no terminal.

    way: how; `auto` asks the terminal
    """

    def __init__(self, way: PreviewName) -> None:
        from diptych.cli.terminal_kind import cells_of_terminal, terminal_draws_sixels, way_of_terminal
        from diptych.cli.terminal_pictures import Cells

        self._way = way_of_terminal(os.environ, terminal_draws_sixels) if way == "auto" else way
        self._cells = Cells()
        if not sys.stdout.isatty():
            self._way = None
        else:
            self._cells = cells_of_terminal(sys.stdout.fileno())
            if self._way is None:
                print("note: this terminal shows no pictures", file=sys.stderr)

    def show(self, key: str) -> None:
        """The picture of an entry; a word where it cannot be opened."""
        from diptych.cli.terminal_pictures import drawn
        from diptych.data.open_picture import open_picture
        from diptych.search.stores.keys import open_key

        if self._way is None:
            return
        try:
            image = open_picture(open_key(key), self._cells.rows * self._cells.height)
        except DiptychError as error:
            print(error, file=sys.stderr)
            return
        sys.stdout.write(drawn(image, self._way, self._cells))
        sys.stdout.flush()
