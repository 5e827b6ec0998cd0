"""Policies playing on the page: players are started when somebody looks, and end when nobody does.

The server never imports torch. A player does, in a process of its own (`lockstep.player`), and writes one JSON object a
line; everyone who looks at the same weights gets the lines of one player, as server-sent events.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lockstep.storage.stored_models import NEWEST, stored_models

MOST_PLAYERS = 4
"""At once; each is a process with torch in it, a few hundred megabytes."""
SPEEDS = (0.5, 1.0, 2.0, 4.0)
_STAYS = 3.0
"""Seconds that a player goes on without anyone looking: a page that is reloaded finds it still playing."""
_LONGEST_LINE = 16 << 20
"""Bytes of a frame."""
_QUIET = 1.0
"""Seconds without a frame after which something is sent anyway: only then is a closed page noticed."""
_BEHIND = 4
"""Frames that a slow reader may be behind; older ones are dropped."""
_THREADS = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LP_NUM_THREADS")}
"""Of everything that computes in a player; LP is Mesa's software renderer."""

FindRun = Callable[[str], Path | None]
"""From what the page calls a run to its directory; None if there is no such run."""
_Key = tuple[Path, str, float]


def routes(find_run: FindRun, stopping: Callable[[], bool] = lambda: False) -> list[Route]:
    """To be mounted at /play. `models`: the weights of a run that can be played; `frames`: some playing, as events.

    `stopping`: whether the server is about to end, and open connections should as well.
    """
    players = Players(stopping)

    async def models(request: Request) -> Response:
        run = find_run(request.query_params.get("run", ""))
        if run is None:
            return JSONResponse({"error": "no such run"}, 404)
        found = await asyncio.to_thread(stored_models, run)
        return JSONResponse({"models": [{"name": model.name, "step": model.step} for model in found]})

    async def frames(request: Request) -> Response:
        run = find_run(request.query_params.get("run", ""))
        model, speed = request.query_params.get("model", NEWEST), request.query_params.get("speed", "1")
        if run is None or speed not in map("{:g}".format, SPEEDS):
            return JSONResponse({"error": "no such run" if run is None else "no such speed"}, 404)
        # Only names that are there: what a request says never becomes part of a path or of a command.
        if model != NEWEST and model not in {found.name for found in await asyncio.to_thread(stored_models, run)}:
            return JSONResponse({"error": "no such weights in this run"}, 404)
        events = players.watch((run, model, float(speed)))
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    return [Route("/models", models), Route("/frames", frames)]


class Players:
    """The players of one server, at most MOST_PLAYERS."""

    def __init__(self, stopping: Callable[[], bool] = lambda: False) -> None:
        self._stopping = stopping
        self._players: dict[_Key, _Player] = {}

    async def watch(self, key: _Key) -> AsyncIterator[str]:
        """Server-sent events of a player, which is started if nobody watches these weights yet."""
        if not self._has_room_for(key):
            yield _event("over", {"error": f"{MOST_PLAYERS} policies are playing already; close one of them first"})
            return
        # No `await` between looking and storing: another request must not start the same player.
        player = self._players.get(key) or self._players.setdefault(key, _Player(key))
        lines: asyncio.Queue[bytes | None] = asyncio.Queue(_BEHIND)
        player.join(lines)
        try:
            while not self._stopping():
                try:
                    line = await asyncio.wait_for(lines.get(), _QUIET)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if line is None:
                    break
                yield _framed(line)
        finally:
            player.leave(lines)

    def _has_room_for(self, key: _Key) -> bool:
        """Whether there is such a player, or another one may start in the place of one that nobody looks at."""
        self._players = {key: player for key, player in self._players.items() if not player.is_over}
        if key in self._players or len(self._players) < MOST_PLAYERS:
            return True
        idle = next((other for other, player in self._players.items() if not player.is_watched), None)
        if idle is not None:
            self._players.pop(idle).end()
        return idle is not None


class _Player:
    """One player process and those who look at it."""

    def __init__(self, key: _Key) -> None:
        self._key = key
        self._readers: set[asyncio.Queue[bytes | None]] = set()
        self._last: bytes | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._run())

    @property
    def is_over(self) -> bool:
        # Cancelled is as good as done: nobody may join a player that is about to end.
        return self._task.done() or self._task.cancelling() > 0

    @property
    def is_watched(self) -> bool:
        return bool(self._readers)

    def join(self, lines: "asyncio.Queue[bytes | None]") -> None:
        """Begin to receive lines, the newest at once."""
        if self._leaving is not None:
            self._leaving.cancel()
        self._readers.add(lines)
        if self._last is not None:
            lines.put_nowait(self._last)
        if self.is_over:
            lines.put_nowait(None)

    def leave(self, lines: "asyncio.Queue[bytes | None]") -> None:
        """Stop receiving lines; the player ends a little after the last reader has left."""
        self._readers.discard(lines)
        if not self._readers:
            self._leaving = asyncio.get_running_loop().call_later(_STAYS, self.end)

    def end(self) -> None:
        """End the process, unless somebody came back."""
        if not self._readers:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *command(self._key),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_LONGEST_LINE,
                env={**os.environ, **_THREADS, "CUDA_VISIBLE_DEVICES": ""},
            )
            try:
                await self._pass_on(process)
            finally:
                await _end(process)
        except OSError as error:
            self._fail(f"the player cannot be started: {error.strerror}")
        except ValueError:  # from the reader of lines
            self._fail(f"a frame is larger than {_LONGEST_LINE:,} bytes")
        finally:
            for reader in self._readers:
                _offer(reader, None)

    async def _pass_on(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self._send(line)
        code = await process.wait()
        if self._last is None or code:
            self._fail(f"the player ended with exit code {code}")

    def _fail(self, why: str) -> None:
        """Tell that nothing more will come: without that, a browser would connect again and start another player."""
        self._send(json.dumps({"error": why}).encode())

    def _send(self, line: bytes) -> None:
        self._last = line
        for reader in self._readers:
            _offer(reader, line)


def command(key: _Key) -> list[str]:
    """The command line of a player."""
    run, model, speed = key
    return [sys.executable, "-m", "lockstep.player", str(run), "--model", model, "--speed", f"{speed:g}"]


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a player. It ends with its stdin; killed as well, in case it hangs in somebody's environment."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    # Before the event loop ends, or it would complain about a process that is still its own.
    await process.wait()


def _offer(reader: "asyncio.Queue[bytes | None]", line: bytes | None) -> None:
    """Add a line to a reader's queue; a reader that is too slow loses the oldest."""
    if reader.full():
        reader.get_nowait()
    reader.put_nowait(line)


def _framed(line: bytes) -> str:
    """A player's line as an event: over, if it says that nothing can be shown, else a frame or a note."""
    # A line of JSON has no line break inside, so it is the data of one event as it is.
    kind = "over" if line.startswith(b'{"error"') else "note" if line.startswith(b'{"note"') else "frame"
    return f"event: {kind}\ndata: {line.decode().rstrip()}\n\n"


def _event(kind: str, content: dict[str, str]) -> str:
    return f"event: {kind}\ndata: {json.dumps(content)}\n\n"
