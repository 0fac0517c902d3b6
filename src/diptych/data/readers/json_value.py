"""JSON from outside: whatever is wrong with it is one kind of error."""

import json
from typing import Any


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text; json.JSONDecodeError for what cannot be one, however it was made to be so."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", "", 0) from None
    except ValueError:  # Python does not read numbers of thousands of digits
        raise json.JSONDecodeError("a number with too many digits", "", 0) from None
