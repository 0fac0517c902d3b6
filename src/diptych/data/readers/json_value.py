"""JSON from outside: whatever is wrong with it is one kind of error."""

from diptych.common.config import parse_json as read_json

__all__ = ["read_json"]
