"""What a request can go wrong with, beyond bad input."""

from diptych.common.errors import DiptychError


class NotFound(DiptychError):  # noqa: N818
    """Nothing here has this name."""


class TooLarge(DiptychError):  # noqa: N818
    """More bytes or pixels than the server takes."""


class Forbidden(DiptychError):  # noqa: N818
    """Nobody may do this here."""


class Busy(Exception):  # noqa: N818
    """Too much is waiting already, or it took too long; come back after some seconds."""

    def __init__(self, sentence: str, retry_after: int = 1) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class Unauthorised(Exception):  # noqa: N818 (what it is, not that it is wrong)
    """The token is missing or wrong."""
