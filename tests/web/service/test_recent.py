from diptych.web.service.recent import Recent


def test_what_was_not_used_for_longest_goes() -> None:
    recent: Recent[str] = Recent(most_bytes=10, most=3)
    for name in "abc":
        recent.put(name, name, 3)
    assert recent.get("a") == "a"
    recent.put("d", "d", 3)
    assert [recent.get(name) for name in "abcd"] == ["a", None, "c", "d"]
    recent.put("e", "e", 9)
    assert [recent.get(name) for name in "acde"] == [None, None, None, "e"]
    recent.put("f", "f", 99)  # larger than all room: it alone is kept
    assert (recent.get("f"), len(recent)) == ("f", 1)
