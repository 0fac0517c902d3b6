"""A video on the page, in a real browser: it stands at the second that was found."""

from pathlib import Path

import pytest

from diptych.search.index import Index
from tests.data.clips import BLUE, RED, write_clip
from tests.web.chromium import chromium
from tests.web.models import own_folders, vse_folder
from tests.web.serving import serving, small_index

__all__ = ["own_folders", "vse_folder"]
pytest.importorskip("av", reason="videos need diptych[video]")
STANDS = """async () => {
  const video = document.querySelector('video');
  for (let i = 0; i < 100 && video.readyState < 2; i++) await new Promise(go => setTimeout(go, 100));
  return [video.error && video.error.message, video.currentTime, video.controls];
}"""


def test_a_frame_opens_its_video_where_it_stands(tmp_path: Path, vse_folder: str) -> None:
    index: Index = small_index(tmp_path, vse_folder, pictures=2, sentences=False)
    write_clip(tmp_path / "pictures" / "clip.mp4", [(RED, 3.0), (BLUE, 3.0)], keys=10)
    index.sync(tmp_path / "pictures")
    with index, serving(index) as address, chromium() as browser:
        page = browser.new_page()
        faults: list[str] = []
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.goto(f"{address}/?q=a+dog&sort=path")
        page.get_by_text("clip.mp4 at 0:03").wait_for()
        page.locator("li.card", has_text="clip.mp4 at 0:03").locator("a.open").click()
        page.locator("video").wait_for()
        fault, second, controls = page.evaluate(STANDS)
        if fault:
            pytest.skip(f"this Chromium cannot play the video: {fault}")
        assert (second, controls) == (pytest.approx(3.0, abs=0.01), True)
        assert faults == []
