from pathlib import Path

from PIL import Image

from diptych.training.demo import QUESTIONS, demo_recipe, run_demo


def test_the_demo_trains_judges_and_answers(tmp_path: Path) -> None:
    demo = run_demo(tmp_path / "demo", demo_recipe(scenes=100, epochs=3))
    assert demo is not None
    assert demo.pictures == 140
    # Twenty test scenes: guessing gives about 5 + 25 + 50 twice; training must be far above it.
    assert demo.evaluation["rsum"] > 200
    assert [a.text for a in demo.answers[3:]] == list(QUESTIONS)
    for answer in demo.answers:
        scores = [found.score for found in answer.found]
        assert scores == sorted(scores, reverse=True)
        assert len(scores) == 3
    with Image.open(demo.sheet) as sheet:
        assert sheet.width > 400
    again = run_demo(tmp_path / "demo", demo_recipe(scenes=100, epochs=3))
    assert again is not None
    assert again.evaluation.figures == demo.evaluation.figures
