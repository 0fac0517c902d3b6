import numpy as np
from PIL import Image

from diptych.encoders.huggingface_vision import HALVES
from diptych.encoders.tower_preprocess import TowerPreprocess
from tests.encoders.pictures import picture


def read(settings: dict[str, object]) -> TowerPreprocess:
    return TowerPreprocess.read(settings, 32, HALVES)


def test_preprocessing_by_its_settings() -> None:
    wide = Image.new("RGB", (100, 50))
    assert read({}).pixels(wide).shape == (32, 32, 3)
    assert read({"size": {"height": 24, "width": 24}}).pixels(wide).shape == (24, 24, 3)
    assert read({"size": 24, "crop_size": 20, "do_center_crop": True}).pixels(wide).shape == (20, 20, 3)
    assert read({"size": {"shortest_edge": 24}, "do_center_crop": False}).pixels(wide).shape == (32, 32, 3)
    # A crop that is larger than the picture has black around it.
    padded = TowerPreprocess(16, *HALVES, 3, 10, (16, 16)).pixels(Image.new("RGB", (10, 10), "white"))
    assert padded.shape == (16, 16, 3)
    assert padded[8, 8].tolist() == [255] * 3
    assert padded[0, 0].tolist() == [0] * 3


def test_the_frame_is_the_part_of_a_picture_that_is_seen() -> None:
    cropped = read({"size": {"shortest_edge": 32}, "crop_size": 32, "do_center_crop": True})
    assert cropped.frame((64, 48)) == (5.0 * 64 / 42, 0.0, 37.0 * 64 / 42, 48.0)  # 64 x 48 becomes 42 x 32
    assert read({}).frame((64, 48)) == (0.0, 0.0, 64.0, 48.0)
    x0, y0, x1, y1 = cropped.frame((64, 48))
    image = picture(64, 48, seed=1)
    seen = np.asarray(image.crop((round(x0), round(y0), round(x1), round(y1))).resize((32, 32)), np.float32)
    assert np.abs(seen - cropped.pixels(image).astype(np.float32)).mean() < 12
