"""Makes docs/page.png from the real page: the results of a sentence on the left, on the right why the first is there.

    python docs/_make/page_picture.py                          # the demo's photographs, with the model that ships
    python docs/_make/page_picture.py --pictures FOLDER --query "two dogs on a beach"
    python docs/_make/page_picture.py --index FILE --query "two dogs on a beach" --rerank MODEL

It needs Chromium, and the Python package playwright.
"""

import argparse
import io
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn
from PIL import Image, ImageDraw

from diptych.common.errors import DiptychError
from diptych.search.demo import run_demo
from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.settings import ServerSettings

OUT = Path(__file__).resolve().parent.parent / "page.png"
QUERY, WORD = "sheep on the grass by a lighthouse", "lighthouse"
PANEL, WIDTH = (1180, 860), 1600
HINGE, PIN = (220, 215, 203), (201, 138, 43)


@contextmanager
def served(index: Index, rerank: str | None, credits: str | None) -> Iterator[str]:
    """The page on a free port; gives its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
        app = create_app(ServerSettings(port=port, rerank=rerank, credits=credits), index)
        app.state.service.warm()
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


def panels(address: str, query: str, word: str, rerank: bool) -> list[Image.Image]:
    """Screenshots of the results, in light, and of the explanation of the first, in dark."""
    from playwright.sync_api import ViewportSize, sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((path for path in map(shutil.which, names) if path), None)
    if chromium is None:
        raise DiptychError("Chromium is not installed; it takes the picture of the page")
    taken = []
    size: ViewportSize = {"width": PANEL[0], "height": PANEL[1]}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")
            page.goto(f"{address}/?{urlencode({'q': query} | ({'rerank': '1'} if rerank else {}))}")
            page.evaluate("document.activeElement.blur()")
            if scheme == "dark":
                show_why(page, word)
            page.wait_for_load_state("networkidle")
            taken.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
        browser.close()
    return taken


def show_why(page: Any, word: str) -> None:
    """Open the explanation of the first result by the searching model, and choose a word of it."""
    page.locator("#found .open").first.click()
    page.click("#viewer [data-do=why]")
    page.wait_for_selector("#viewer .words button")
    fast = page.locator("#viewer").get_by_text("Searching model")
    if fast.count():
        fast.click()
        page.wait_for_load_state("networkidle")
        page.wait_for_selector("#viewer .words button")
    words = page.locator("#viewer .words button")
    named = [text.strip().lower() for text in words.all_inner_texts()]
    words.nth(named.index(word.lower()) if word.lower() in named else 0).click()


def joined(left: Image.Image, right: Image.Image, width: int = WIDTH) -> Image.Image:
    """Two panels with a hinge between them, `width` pixels wide."""
    gap = 24
    canvas = Image.new("RGB", (left.width + gap + right.width, max(left.height, right.height)), "white")
    canvas.paste(left, (0, 0))
    canvas.paste(right, (left.width + gap, 0))
    brush = ImageDraw.Draw(canvas)
    middle = left.width + gap // 2
    brush.line((middle, 0, middle, canvas.height), fill=HINGE, width=2)
    for part in (0.2, 0.8):
        y = round(canvas.height * part)
        brush.rounded_rectangle((middle - 7, y - 26, middle + 7, y + 26), 7, fill=PIN)
    return canvas.resize((width, round(canvas.height * width / canvas.width)), Image.Resampling.LANCZOS)


def main() -> None:
    """Parse, take, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--pictures", type=Path, metavar="FOLDER", help="pictures in place of the demo's")
    what.add_argument("--index", metavar="FILE", help="an index that is there already")
    parser.add_argument("--model", default="default", help="the model to index with")
    parser.add_argument("--rerank", metavar="MODEL", help="a re-ranking model; none by default")
    parser.add_argument("--query", default=QUERY, help="the sentence to search with")
    parser.add_argument("--word", default=WORD, help="the word to choose")
    parser.add_argument("--out", type=Path, default=OUT, help="the picture to write")
    given = parser.parse_args()
    try:
        credits = None
        if given.index:
            index = Index.open(given.index)
        else:
            demo = run_demo(given.pictures, model=given.model, queries=[given.query])
            index, credits = demo.index, demo.credits
        with index, served(index, given.rerank, credits) as address:
            left, right = panels(address, given.query, given.word, given.rerank is not None)
            joined(left, right).save(given.out, optimize=True)
    except DiptychError as error:
        sys.exit(f"error: {error}")
    print(given.out)


if __name__ == "__main__":
    main()
