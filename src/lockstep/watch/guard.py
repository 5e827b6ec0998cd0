"""Who may read the page: this machine's user alone, by a token, under a name of this machine.

A page of another site can make a browser send requests to a port of this machine. The token keeps it from getting
answers; the Host check keeps out a site whose name was made to lead here (DNS rebinding).
"""

import hashlib
import re
import secrets

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)
"""Any port: through `ssh -L 9000:localhost:8000` the browser says localhost:9000."""
HEADERS = {
    # Nothing from outside, nothing inline: a text from a run's file that became markup could not do anything.
    # blob: and data: are pictures that the page makes itself.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(24)


class Guard:
    """Lets a request through that has the token, in the address once and in a cookie from then on."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token
        # Cookies of one host are shared by all its ports, so that two watchers need names of their own.
        self._cookie = f"lockstep-{hashlib.sha256(token.encode()).hexdigest()[:12]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        # The cookie is only set by the address with the token, not by every answer.
        answer = self._with_headers(send, by_address=self._matches(self._from_address(scope)))
        await (self._app if refusal is None else refusal)(scope, receive, answer)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if not _HOST.fullmatch(headers.get("host", "")):
            return PlainTextResponse("this page answers to localhost only\n", 403)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("this page is read-only\n", 405)
        if not (self._matches(self._from_cookie(headers)) or self._matches(self._from_address(scope))):
            return PlainTextResponse("open the address that lockstep watch printed, with its token\n", 403)
        return None

    def _matches(self, given: str) -> bool:
        # In constant time: how long it takes must not tell how much of a guess was right.
        return secrets.compare_digest(given.encode(), self._token.encode())

    def _from_cookie(self, headers: Headers) -> str:
        # As lenient as browsers are: other services of this host set cookies of their own, such as JSON, at which the
        # parser of the standard library stops.
        return cookie_parser(headers.get("cookie", "")).get(self._cookie, "")

    def _from_address(self, scope: Scope) -> str:
        # Only the page itself takes it: no other address with a token should stand in a history.
        return QueryParams(scope["query_string"]).get("token", "") if scope["path"] == "/" else ""

    def _with_headers(self, send: Send, by_address: bool) -> Send:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if by_address and message["status"] == 200:
                    headers.append("Set-Cookie", f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict")
            await send(message)

        return answer
