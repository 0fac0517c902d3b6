"""Wrong tokens are answered slowly, so that guessing one takes longer than anybody has."""

import asyncio
import ipaddress
import math
import time
from collections import OrderedDict
from dataclasses import dataclass

from starlette.responses import Response

from diptych.web.responses import problem

# So many wrong tokens of a client are answered at once: people mistype.
FREE = 10
# The seconds for which the next answer is held back; twice as long each time, up to the longest.
FIRST, LONGEST = 0.25, 8.0
# After so many seconds without a wrong token a client begins anew.
FORGET = 600.0
# Clients that are kept in mind, and answers of one client that are held back at a time.
MOST_CLIENTS, MOST_HELD = 4096, 4


@dataclass
class _Client:
    wrong: int = 0
    last: float = 0.0
    held: int = 0


class WrongTokens:
    """Counts wrong tokens by the client's address, in bounded memory.

    The right token is never held back or refused here, whoever else guesses from the same address: only what was
    found to be wrong comes here. Guesses in parallel are told to come back (429).
    """

    def __init__(self) -> None:
        self._clients: OrderedDict[str, _Client] = OrderedDict()

    def __len__(self) -> int:
        return len(self._clients)

    async def answer(self, address: str) -> Response | None:
        """Wait for as long as this client's wrong tokens call for; the answer, where it guesses in parallel."""
        client = self._noted(network_of(address), time.monotonic())
        delay = delay_after(client.wrong)
        if delay and client.held >= MOST_HELD:
            sentence = "too many wrong tokens; come back later"
            return problem(429, sentence, {"Retry-After": str(math.ceil(delay)), "Connection": "close"})
        client.held += 1
        try:
            await asyncio.sleep(delay)
        finally:
            client.held -= 1
        return None

    def _noted(self, name: str, now: float) -> _Client:
        """One more wrong token of a client; those that were quiet for longest are forgotten first."""
        client = self._clients.pop(name, None)
        if client is None or now - client.last > FORGET:
            client = _Client()
        self._clients[name] = client
        client.wrong, client.last = client.wrong + 1, now
        while len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)
        return client


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
