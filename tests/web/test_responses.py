import json

import pytest

from diptych.web.responses import problem


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("/home/me/My Pictures/i.db: no such index any more", "i.db: no such index any more"),
        ("the vector of '/home/me/a.jpg' is not as it was written", "the vector of 'a.jpg' is not as it was written"),
        ("file: cannot be read (/srv/x/y.png)", "file: cannot be read (y.png)"),
        (
            "milvus://host:19530/name: the server does not answer",
            "milvus://host:19530/name: the server does not answer",
        ),
        ("a column name=/home/me/x.jpg", "a column name=x.jpg"),
        ("see `/srv/a b/y.png`", "see `y.png`"),
        ("not at file:///srv/z.png", "not at file://z.png"),
        ("expected text/html or a/b/c", "expected text/html or a/b/c"),
    ],
)
def test_no_folder_of_this_machine_is_told(sentence: str, shown: str) -> None:
    assert json.loads(bytes(problem(422, sentence).body)) == {"error": shown}
