import gzip
import json
from pathlib import Path

import pytest

from diptych.common.errors import DiptychError
from diptych.data.statements import GROUPS, OPPOSITES, OTHER, PictureStatement, read_statements

LINES = [
    {"id": 42, "statement": "The cat is under the bed.", "true": False, "relation": "under"},
    {"id": 7, "statement": "The dog is facing the man.", "true": True, "relation": "facing"},
]


def test_lines_are_read_plain_and_gzipped(tmp_path: Path) -> None:
    text = "\n".join(json.dumps(line) for line in LINES) + "\n\n"
    (tmp_path / "plain.jsonl").write_text(text)
    with gzip.open(tmp_path / "packed.jsonl.gz", "wt") as file:
        file.write(text)
    expected = [
        PictureStatement(42, "The cat is under the bed.", False, "under"),
        PictureStatement(7, "The dog is facing the man.", True, "facing"),
    ]
    assert read_statements(tmp_path / "plain.jsonl") == expected
    assert read_statements(tmp_path / "packed.jsonl.gz") == expected


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 2: expected a line of JSON"),
        ("[]", "line 2: id: expected a number, found null"),
        (json.dumps({**LINES[0], "id": "42"}), 'line 2: id: expected a number, found "42"'),
        (json.dumps({**LINES[0], "id": True}), "line 2: id: expected a number, found true"),
        (json.dumps({**LINES[0], "true": "yes"}), 'line 2: true: expected true or false, found "yes"'),
        (json.dumps({**LINES[0], "relation": None}), "line 2: relation: expected a text, found null"),
    ],
)
def test_a_bad_line_is_named_with_what_was_expected(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(LINES[0]) + "\n" + line + "\n")
    with pytest.raises(DiptychError) as caught:
        read_statements(path)
    assert told in str(caught.value)


def test_what_is_no_file_of_statements_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "broken.gz").write_bytes(b"no gzip")
    for name, told in (("empty.jsonl", "no statements"), ("broken.gz", "cannot be read"), ("none", "cannot be read")):
        with pytest.raises(DiptychError, match=told):
            read_statements(tmp_path / name)


def test_a_relation_is_in_one_group() -> None:
    every = [relation for relations in GROUPS.values() for relation in relations]
    assert len(set(every)) == len(every)
    assert PictureStatement(1, "A is under B.", True, "under").group == "projective"
    assert PictureStatement(1, "A is beyond B.", True, "beyond").group == OTHER


def test_the_opposite_changes_the_relation_alone() -> None:
    assert PictureStatement(1, "The cup is on the table.", True, "on").opposite == "The cup is under the table."
    facing = PictureStatement(1, "The dog is facing away from the cat.", True, "facing away from")
    assert facing.opposite == "The dog is facing the cat."
    # Neither where there is no opposite, nor where the relation is not said, or twice.
    assert PictureStatement(1, "A is beyond B.", True, "beyond").opposite is None
    assert PictureStatement(1, "A stands by B.", True, "on").opposite is None
    assert PictureStatement(1, "A by B by C", True, "by").opposite is None
    assert PictureStatement(1, "The onion is on the table.", True, "on").opposite == "The onion is under the table."


def test_opposites_are_no_relation_of_the_same_meaning() -> None:
    for relation, opposite in OPPOSITES.items():
        assert relation != opposite
        assert OPPOSITES.get(opposite) != opposite
