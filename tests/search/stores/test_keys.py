from diptych.search.stores.conditions import fits
from diptych.search.stores.keys import file_of, patterns_of
from diptych.search.stores.store import Condition


def test_parts_know_their_file() -> None:
    assert file_of("/a/b.jpg") == "/a/b.jpg"
    assert file_of("/a/#1.jpg") == "/a/#1.jpg"
    assert file_of("/a/b.txt#12") == "/a/b.txt"
    assert file_of("/a/b.tar#c/d.jpg") == "/a/b.tar"
    assert file_of("/a/b.TAR.gz#c#0") == "/a/b.TAR.gz"


def test_patterns_of_a_path_fit_its_entries_alone() -> None:
    patterns = [Condition("path", "matches", pattern) for pattern in patterns_of("/a/[b]*?/")]
    for key, fitting in {
        "/a/[b]*?": True, "/a/[b]*?#1": True, "/a/[b]*?/c.png": True, "/a/[b]*?/c/d.png": True,
        "/a/bxy": False, "/a/[b]*?2": False, "/a/[b]*?-2/c.png": False, "/a": False,
    }.items():  # fmt: skip
        assert any(fits([pattern], key, "picture", 0, {}) for pattern in patterns) is fitting, key
