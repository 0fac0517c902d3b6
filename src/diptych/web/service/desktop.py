"""The desktop of the machine that the server runs on: folders that are opened there."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence

from diptych.common.errors import DiptychError
from diptych.web.errors import Busy, Forbidden
from diptych.web.settings import ServerSettings

# So many openers may run at a time; some stay until their window is closed.
MOST_AT_ONCE = 8


class Desktop:
    """Opens folders, where the server is for this machine alone and there is a desktop to open them on."""

    def __init__(self, settings: ServerSettings) -> None:
        self._loopback = settings.loopback
        self._running: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    @property
    def can_open(self) -> bool:
        """Whether there is anything to open folders with."""
        return self._loopback and opener() is not None

    def show(self, file: str) -> str:
        """Open the folder that a file lies in; the name of it.

        file: an absolute path that may be shown
        """
        begin = opener()
        if not self._loopback or begin is None:
            raise Forbidden("this server opens no folders: it has no desktop, or is not for its own machine alone")
        folder = os.path.dirname(file)
        with self._lock:
            self._running = [process for process in self._running if process.poll() is None]
            if len(self._running) >= MOST_AT_ONCE:
                raise Busy("too many folders are being opened; try again in a moment")
            try:
                process = subprocess.Popen(
                    [*begin, folder],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                raise DiptychError(f"the folder cannot be opened: {error.strerror}") from None
            self._running.append(process)
        threading.Thread(target=process.wait, name="diptych-opened", daemon=True).start()
        return os.path.basename(folder) or folder


def opener() -> Sequence[str] | None:
    """The program that opens a folder on this desktop; None where there is none."""
    if sys.platform == "darwin":
        return ["open"]
    if sys.platform == "win32":
        return ["explorer"]
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return None
    found = shutil.which("xdg-open")
    return None if found is None else [found]
