"""The live page: a server on loopback that reads run directories and changes nothing."""

import asyncio
import contextlib
import itertools
import json
import math
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from lockstep.errors import UserError
from lockstep.watch import playing
from lockstep.watch.curve_parts import Cursor, View
from lockstep.watch.guard import Guard
from lockstep.watch.library import Library

_STATIC = Path(__file__).parent / "static"
INTERVAL = 1.0
"""Seconds between two looks at the runs, while a page is open."""
_READING = 0.1
_WHILE_READING = 3.0
# Seconds of silence after which a page and what is between (ssh) are told that the connection lives.
_QUIET = 15.0
# Seconds after which an open connection notices that the server wants to end.
_PATIENCE = 0.25
# How much the server, and with it every policy that plays, gives way to the runs when all cores are busy.
_NICENESS = 5
_MOST_POINTS = 4000
_MOST_KEYS = 500
_MOST_TAGS = 50


def application(library: Library, token: str, stopping: Callable[[], bool] = lambda: False) -> Guard:
    """The page and what it asks for, behind the guard. `stopping`: whether open connections should end."""
    return Guard(Starlette(routes=_routes(library, stopping)), token)


def _routes(library: Library, stopping: Callable[[], bool]) -> list[BaseRoute]:
    async def page(_: Request) -> Response:
        return FileResponse(_STATIC / "index.html")

    async def live(_: Request) -> Response:
        return StreamingResponse(_events(library, stopping), media_type="text/event-stream")

    async def details(request: Request) -> Response:
        return _found(await run_in_threadpool(library.details, request.query_params.get("id", "")))

    async def verify(request: Request) -> Response:
        key = request.query_params.get("id", "")
        known = await run_in_threadpool(library.verify, key, request.query_params.get("checkpoint", ""))
        return _found(await run_in_threadpool(library.details, key) if known else None)

    async def series(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(_series, library, request))

    return [
        Route("/", page),
        Route("/api/live", live),
        Route("/api/run", details),
        Route("/api/verify", verify),
        Route("/api/series", series),
        Mount("/play", routes=playing.routes(library.path_of, stopping)),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]


async def _events(library: Library, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """The overview whenever it changes, as server-sent events."""
    sent, sent_at = await run_in_threadpool(library.overview), -math.inf
    if sent:
        # What is known already, at once: reading on may take a moment.
        yield _event(sent)
        await _sleep(INTERVAL, stopping)
    while not stopping():
        more = await run_in_threadpool(library.refresh)
        now = asyncio.get_running_loop().time()
        # While long logs are read the page has a rough picture, and need not be told of every portion.
        if not more or now - sent_at > _WHILE_READING:
            overview = await run_in_threadpool(library.overview)
            # The same object, as long as nothing has changed.
            if overview is not sent:
                sent, sent_at = overview, now
                yield _event(overview)
            elif now - sent_at > _QUIET:
                sent_at = now
                yield ": alive\n\n"
        await _sleep(_READING if more else INTERVAL, stopping)


def _event(overview: dict[str, Any]) -> str:
    return f"data: {json.dumps(overview, allow_nan=False)}\n\n"


async def _sleep(seconds: float, stopping: Callable[[], bool]) -> None:
    """Sleep, but not through the end of the server."""
    parts = math.ceil(seconds / _PATIENCE)
    for _ in range(parts):
        if not stopping():
            await asyncio.sleep(seconds / parts)


def _series(library: Library, request: Request) -> dict[str, list[dict[str, Any]]]:
    """The curves of several tags: one answer for all charts of a page."""
    asked = request.query_params
    view = View(
        axis="time" if asked.get("axis") == "time" else "step",
        smooth=round(_number(asked.get("smooth"), 1.0, 1.0, 1e6)),
        span=(_number(asked.get("from"), -math.inf), _number(asked.get("to"), math.inf)),
        points=round(_number(asked.get("points"), 600.0, 10.0, _MOST_POINTS)),
    )
    runs, tags = asked.getlist("run")[:_MOST_KEYS], asked.getlist("tag")[:_MOST_TAGS]
    if asked.get("bands") == "1":
        return {tag: library.bands(dict.fromkeys(runs), tag, view) for tag in tags}
    # One for each run, in the same order; a page that has nothing yet sends none.
    known = map(Cursor.parse, asked.getlist("cursor"))
    cursors = dict(itertools.zip_longest(runs, itertools.islice(known, len(runs))))
    return {tag: library.series(cursors, tag, view) for tag in tags}


def _number(text: str | None, default: float, low: float = -math.inf, high: float = math.inf) -> float:
    """A number of a request, within bounds; the default for anything else."""
    with contextlib.suppress(ValueError):
        value = float(text or "")
        return default if math.isnan(value) else min(max(value, low), high)
    return default


def _found(content: dict[str, Any] | None) -> Response:
    return JSONResponse({"error": "no such run"}, 404) if content is None else JSONResponse(content)


def bind(port: int) -> socket.socket:
    """A socket that listens on loopback; 0 = any free port."""
    listening = socket.socket()
    # Otherwise a port could not be used again for a minute after the last page was closed.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        # At once: whoever opens the address while the server still starts has to wait, but is not refused.
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise UserError(f"port {port}: {error.strerror}; choose another --port, or 0 for any free one") from error
    return listening


def serve(library: Library, token: str, listening: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    if sys.platform != "win32":
        os.nice(_NICENESS)
    # Pages hold a connection open, which ends by itself as soon as the server wants to.
    app = application(library, token, lambda: server.should_exit)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=2,
        )
    )
    # A first look while the browser starts, so that the page has something to paint at once.
    threading.Thread(target=library.refresh, name="first look", daemon=True).start()
    # uvicorn raises the signal again once it has stopped, which for Ctrl-C is the ordinary end.
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
