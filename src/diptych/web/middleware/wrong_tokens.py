"""Wrong tokens are answered slowly, so that guessing one takes longer than anybody has."""

import asyncio
import ipaddress
import math
import time

from starlette.responses import Response

from diptych.web.middleware.tallies import Tally
from diptych.web.responses import problem

# So many wrong tokens of a client are answered at once: people mistype.
FREE = 10
# The seconds for which the next answer is held back; twice as long each time, up to the longest.
FIRST, LONGEST = 0.25, 8.0
# Answers of one client that are held back at a time.
MOST_HELD = 4


class WrongTokens:
    """Holds answers to wrong tokens back, by how many of them a client's address has sent.

    The right token is never held back or refused here, whoever else guesses from the same address: only what was
    found to be wrong comes here. Guesses in parallel are told to come back (429).

    tally: counts them; most_held: answers of one client that are held back at a time
    """

    def __init__(self, tally: Tally, most_held: int = MOST_HELD) -> None:
        self._tally, self._most_held = tally, most_held
        self._held: dict[str, int] = {}

    async def answer(self, address: str) -> Response | None:
        """Wait for as long as this client's wrong tokens call for; the answer, where it guesses in parallel."""
        name = network_of(address)
        delay = delay_after(self._tally.noted(name, time.monotonic()))
        held = self._held.get(name, 0)
        if delay and held >= self._most_held:
            sentence = "too many wrong tokens; come back later"
            return problem(429, sentence, {"Retry-After": str(math.ceil(delay)), "Connection": "close"})
        self._held[name] = held + 1
        try:
            await asyncio.sleep(delay)
        finally:
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]
        return None


def delay_after(wrong: int) -> float:
    """The seconds for which the answer to so many wrong tokens is held back.

    >>> [delay_after(count) for count in (1, 10, 11, 12, 100)]
    [0.0, 0.0, 0.25, 0.5, 8.0]
    """
    return 0.0 if wrong <= FREE else min(LONGEST, FIRST * 2.0 ** min(wrong - FREE - 1, 30))


def network_of(address: str) -> str:
    """Whose an address is: of IPv6 the first half, since one client has all of the rest."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if known.version == 4:
        return str(known)
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ipaddress.ip_network((known, 64), strict=False))
