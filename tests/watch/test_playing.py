"""Players on the page: started when somebody looks, shared, few, ended when nobody does."""

import asyncio
import json
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from starlette.applications import Starlette

from lockstep.storage.stored_models import StoredModel
from lockstep.watch import playing

COUNTER = """
import os, sys, time
print('{"note":"loading"}', flush=True)
for number in range(10_000):
    print('{"step":%d,"pid":%d}' % (number, os.getpid()), flush=True)
    time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    monkeypatch.setattr(playing, "_STAYS", 0.1)


@pytest.fixture
def instead(monkeypatch):
    """Have every player run this program."""
    return lambda code: monkeypatch.setattr(playing, "command", lambda _: [sys.executable, "-c", code])


def parsed(event):
    kind, data = event.strip().split("\n")
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def first_frame(events):
    while True:
        kind, content = parsed(await anext(events))
        if kind == "frame":
            return content


def gone(pid):
    # A zombie is ended too: the event loop reaps it when it comes to that.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def key(number):
    return Path(f"/runs/{number}"), "newest", 1.0


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
def test_those_who_look_share_a_player_which_ends_after_the_last_of_them(instead):
    instead(COUNTER)

    async def look():
        players = playing.Players()
        async with aclosing(players.watch(key(1))) as one:
            first = await first_frame(one)
            async with aclosing(players.watch(key(1))) as other:
                assert (await first_frame(other))["pid"] == first["pid"]
            await asyncio.sleep(0.3)
            assert not gone(first["pid"]), "somebody still looks"
        await asyncio.sleep(0.1 + 0.3)
        assert gone(first["pid"])
        async with aclosing(players.watch(key(1))) as again:
            assert (await first_frame(again))["pid"] != first["pid"]

    asyncio.run(look())


def test_one_player_too_many_is_refused_until_another_is_left(instead, monkeypatch):
    instead(COUNTER)
    monkeypatch.setattr(playing, "MOST_PLAYERS", 2)
    monkeypatch.setattr(playing, "_STAYS", 60.0)

    async def look():
        players = playing.Players()
        one, two = players.watch(key(1)), players.watch(key(2))
        await first_frame(one)
        await first_frame(two)
        refused = [parsed(event) async for event in players.watch(key(3))]
        assert refused == [("over", {"error": "2 policies are playing already; close one of them first"})]
        await one.aclose()
        async with aclosing(players.watch(key(3))) as three:
            assert (await first_frame(three))["step"] >= 0
        await two.aclose()

    asyncio.run(look())


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ('print(\'{"error":"fit: cannot be played"}\')', {"error": "fit: cannot be played"}),
        ("raise SystemExit(7)", {"error": "the player ended with exit code 7"}),
        ("print('x' * 5000)", {"error": "a frame is larger than 2,000 bytes"}),
    ],
)
def test_why_nothing_can_be_shown_is_the_last_event(instead, monkeypatch, code, ending):
    monkeypatch.setattr(playing, "_LONGEST_LINE", 2000)
    instead(code)

    async def look():
        return [parsed(event) async for event in playing.Players().watch(key(1))]

    assert asyncio.run(look())[-1] == ("over", ending)


def test_a_player_that_cannot_be_started_is_over_too(monkeypatch):
    monkeypatch.setattr(playing, "command", lambda _: ["/no/such/program"])

    async def look():
        return [parsed(event) async for event in playing.Players().watch(key(1))]

    ending = {"error": "the player cannot be started: No such file or directory"}
    assert asyncio.run(asyncio.wait_for(look(), 30)) == [("over", ending)]


def test_connections_end_with_the_server(instead):
    instead(COUNTER)
    seen = []

    async def look():
        async for event in playing.Players(stopping=lambda: len(seen) == 3).watch(key(1)):
            seen.append(event)

    asyncio.run(asyncio.wait_for(look(), 30))
    assert len(seen) == 3


def test_a_slow_reader_loses_the_oldest_frames_and_keeps_the_newest():
    queue = asyncio.Queue(2)
    for line in (b"1", b"2", b"3", None):
        playing._offer(queue, line)
    assert [queue.get_nowait(), queue.get_nowait()] == [b"3", None]


async def answer(path, run="snake"):
    """Status and JSON of a request, asked without a server; the run's only weights are called final."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        await asyncio.sleep(60)

    address, _, query = path.partition("?")
    scope = {"type": "http", "method": "GET", "path": address, "query_string": query.encode(), "headers": []}
    routes = playing.routes(lambda name: Path("/runs/x") if name == run else None)
    await Starlette(routes=routes)(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/models?run=other", "no such run"),
        ("/frames?run=other", "no such run"),
        ("/frames?run=snake&model=../../secret", "no such weights in this run"),
        ("/frames?run=snake&speed=1000", "no such speed"),
        ("/frames?run=snake&speed=1%20--model%20x", "no such speed"),
    ],
)
def test_only_runs_weights_and_speeds_that_exist_are_played(monkeypatch, path, error):
    monkeypatch.setattr(playing, "stored_models", lambda _: [StoredModel("final", Path("/runs/x/final"), 7)])
    monkeypatch.setattr(playing, "command", lambda _: pytest.fail("started a player"))
    assert asyncio.run(answer(path)) == (404, {"error": error})


def test_the_weights_that_can_be_chosen_are_listed(monkeypatch):
    monkeypatch.setattr(playing, "stored_models", lambda _: [StoredModel("final", Path("/runs/x/final"), 7)])
    assert asyncio.run(answer("/models?run=snake")) == (200, {"models": [{"name": "final", "step": 7}]})


def test_the_server_does_not_import_torch():
    code = "import sys, lockstep.watch.playing; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
