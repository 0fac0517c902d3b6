"""Who may do what: the token, the names that the server answers to, and headers that keep other sites out."""

import hashlib
import hmac
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diptych.common.pages import render
from diptych.web.middleware.tallies import Tally
from diptych.web.middleware.wrong_tokens import MOST_HELD, WrongTokens
from diptych.web.responses import problem, unauthorised
from diptych.web.settings import ServerSettings, is_loopback

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# Whatever changes the index lies below these.
CHANGES = ("/api/add", "/api/entries")
OPEN = frozenset({"/health", "/ready"})
AUTHORISED = "diptych-authorised"
_WRONG = "diptych-wrong-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self'; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer": with it browsers hide the origin of this page's own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """Stands before everything else: a request that may not be here is answered before its body is read."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, tally: Tally) -> None:
        self.app, self.settings = app, settings
        self._token = settings.token.encode()
        self._cookie = f"diptych-{settings.port}"
        # Cookies are shared by all ports of a machine: another server there must not learn the token itself.
        self._cookie_value = hmac.digest(self._token, b"cookie", "sha256").hex().encode()
        self._names = {name.lower() for name in settings.hosts}
        self.wrong_tokens = WrongTokens(tally, settings.share(MOST_HELD))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is allowed."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if scope.pop(_WRONG, False):
            refusal = await self.wrong_tokens.answer((scope.get("client") or ("",))[0]) or refusal
        await (self.app if refusal is None else refusal)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        if not self._known_host(headers.get("host", "")):
            return problem(421, "the server is not known by this name; start it with --host-name NAME to allow it")
        if _from_elsewhere(headers, path, method) or (method not in SAFE and not self._own_origin(headers)):
            return problem(403, "a page of another site may not do this")
        if path == "/" and method == "GET" and b"token=" in scope["query_string"]:
            return self._welcome(scope)
        bearer = self._bearer(headers)
        scope[_WRONG] = bearer is False
        # Cookies are not counted: a wrong one is an older server's, and nobody guesses one.
        authorised = scope[AUTHORISED] = bool(bearer) or self._has_cookie(headers, method)
        change = method not in SAFE and path.startswith(CHANGES)
        if authorised or not (change or (not self.settings.loopback and path not in OPEN)):
            return None
        if path == "/" and "text/html" in headers.get("accept", ""):
            return HTMLResponse(render("web/refused.html", {"title": "Diptych"}), 401)
        return unauthorised()

    def _known_host(self, host: str) -> bool:
        """Where the server is for this machine only, a name that leads here from outside is somebody's trick."""
        name = (urlsplit(f"//{host}").hostname or "") if _is_netloc(host) else ""
        if name in self._names or host.lower() in self._names:
            return True
        return bool(name) and (not self.settings.loopback or is_loopback(name))

    def _own_origin(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is None:
            return True
        netloc = origin.partition("://")[2].lower()
        if not _is_netloc(netloc):
            return False
        return netloc == headers.get("host", "").lower() or (urlsplit(f"//{netloc}").hostname or "") in self._names

    def _bearer(self, headers: Headers) -> bool | None:
        """Whether the token that is given is the right one; None where none is given."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            return None
        return _same(given.strip().encode("latin-1", "replace"), self._token)

    def _has_cookie(self, headers: Headers, method: str) -> bool:
        for line in headers.getlist("cookie"):
            try:
                cookie = SimpleCookie(line).get(self._cookie)
            except CookieError:
                continue
            if cookie is not None and _same(cookie.value.encode("latin-1", "replace"), self._cookie_value):
                # A browser says where a change comes from; without that a cookie is not enough for one.
                return method in SAFE or "origin" in headers or "sec-fetch-site" in headers
        return False

    def _welcome(self, scope: Scope) -> Response:
        """The page was opened with the token: a cookie takes it over, and it goes from the address."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not _same(given.encode("utf-8", "replace"), self._token):
            scope[_WRONG] = True
            return unauthorised("this is not the token that the server printed when it started")
        response = RedirectResponse("/", 303)
        response.set_cookie(
            self._cookie,
            self._cookie_value.decode(),
            httponly=True,
            samesite="lax",  # links from elsewhere may be followed; changes need the page's own origin
            secure=scope.get("scheme") == "https",
        )
        return response


def _same(given: bytes, known: bytes) -> bool:
    """Compared in a time that tells nothing of where they differ, nor of how long the right one is."""
    digests: Iterable[bytes] = (hashlib.blake2b(value).digest() for value in (given, known))
    return hmac.compare_digest(*digests)


def _from_elsewhere(headers: Headers, path: str, method: str) -> bool:
    """Whether a browser asks for it on behalf of another site's page, and not because somebody followed a link."""
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    link = method in SAFE and headers.get("sec-fetch-mode") == "navigate"
    return not link or path.startswith(("/api/", "/pictures/", "/media/"))


def _is_netloc(text: str) -> bool:
    """Whether it is a host and perhaps a port, and nothing else."""
    if not text or any(c in text for c in "/?#@\\ ,"):
        return False
    try:
        split = urlsplit(f"//{text}")
        return bool(split.hostname) and (split.port is None or split.port > 0)
    except ValueError:
        return False
