from diptych.search.stores.keys import file_of


def test_parts_know_their_file() -> None:
    assert file_of("/a/b.jpg") == "/a/b.jpg"
    assert file_of("/a/#1.jpg") == "/a/#1.jpg"
    assert file_of("/a/b.txt#12") == "/a/b.txt"
    assert file_of("/a/b.tar#c/d.jpg") == "/a/b.tar"
    assert file_of("/a/b.TAR.gz#c#0") == "/a/b.TAR.gz"
