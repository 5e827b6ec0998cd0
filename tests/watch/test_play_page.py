"""The playing panel in a real browser: what players send is painted, texts stay texts, nothing leaves the machine."""

import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright.sync_api")

import uvicorn
from playwright.sync_api import sync_playwright
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from lockstep.reporting.drawing.bars import Bars
from lockstep.reporting.drawing.board import Board, Snake, Team
from lockstep.reporting.drawing.chart import Chart, Marks
from lockstep.watch import playing

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium at /usr/bin/chromium")
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"
HEAD = (250, 10, 20)
DRAWINGS = {
    "board": Board(4, 4, [Snake([5, 6], HEAD, (0, 200, 0))], [0], (0, 0, 255), [Team(HOSTILE, [HEAD])]),
    "chart": Chart("account", {"account": [1.0, 3.0, 2.0]}, 10, marks=[Marks("opened", [1], (0, 255, 0))]),
    "bars": Bars(["A v B", HOSTILE], ["dot", "six"], [0.8, 0.2], 1),
}
PAGE = """<!doctype html><meta name="viewport" content="width=device-width"><body>
<section id="one"></section><section id="two"></section><script type="module" src="/page.js"></script>"""
SCRIPT = """import {mount} from "/static/play.js";
const [one, two] = new URLSearchParams(location.search).getAll("run");
mount(document.getElementById("one"), {run: one, start: true});
if (two) window.second = mount(document.getElementById("two"), {run: two, start: true});"""
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'"


@contextmanager
def serving(find_run):
    """A page with two panels, without the rest of `watch`; yields its address."""

    def page(content, kind):
        return lambda _: HTMLResponse(content, media_type=kind, headers={"Content-Security-Policy": POLICY})

    static = Path(playing.__file__).parent / "static"
    routes = [
        Route("/", page(PAGE, "text/html")),
        Route("/page.js", page(SCRIPT, "text/javascript")),
        Mount("/play", routes=playing.routes(find_run)),
        Mount("/static", StaticFiles(directory=static)),
    ]
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(20)


@pytest.fixture
def address(monkeypatch):
    """A server whose players send a drawing a hundred times, named like the run."""

    def command(key):
        frame = {"step": 12345, "caption": HOSTILE, "drawing": DRAWINGS[key[0].name].to_json()}
        code = f"import time\nfor _ in range(100):\n print({json.dumps(frame)!r}, flush=True)\n time.sleep(0.05)"
        return [sys.executable, "-c", code]

    monkeypatch.setattr(playing, "command", command)
    with serving(lambda name: Path(name) if name in DRAWINGS else None) as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


def frames(page):
    return [int(panel.get_attribute("data-frames") or 0) for panel in page.query_selector_all(".play")]


def wait_for_frames(page, count):
    deadline = time.monotonic() + 60
    while min(frames(page)) < count:
        assert time.monotonic() < deadline, page.inner_text("body")
        time.sleep(0.1)


def colour_at(page, x, y):
    """The colour of the first canvas at a point given as shares of its width and height."""
    code = "(c, [x, y]) => [...c.getContext('2d').getImageData(x * c.width, y * c.height, 1, 1).data]"
    return tuple(page.eval_on_selector("canvas", code, [x, y]))[:3]


def test_two_policies_play_side_by_side_and_texts_stay_texts(address, browser):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    asked, problems = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{address}/?run=board&run=chart")
    wait_for_frames(page, 5)
    # The board is 420 wide below a legend of 28: the head lies in the middle of the cell in row 1, column 1.
    assert colour_at(page, 1.5 / 4, (28 + 1.5 * 105) / 448) == HEAD
    assert page.inner_text(".play-step") == "playing step 12,345"
    assert page.inner_text(".play-caption") == HOSTILE and page.title() == ""
    assert page.query_selector("img") is None
    page.evaluate("window.second.remove()")
    assert len(frames(page)) == 1
    page.click(".play-button")
    assert page.inner_text(".play-button") == "Play"
    assert all(url.startswith((address, "data:")) for url in asked)
    assert problems == []


@pytest.mark.parametrize("run", DRAWINGS)
def test_every_drawing_fits_a_phone(address, browser, run):
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    page.goto(f"{address}/?run={run}")
    wait_for_frames(page, 1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shades = "c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"
    assert page.eval_on_selector("canvas", shades) > 5


def test_a_run_that_is_gone_is_one_line_on_the_page(address, browser):
    page = browser.new_page()
    page.goto(f"{address}/?run=nothing")
    page.wait_for_selector(".play-problem", timeout=30_000)
    assert "not there any more" in page.inner_text(".play-note")
    assert page.inner_text(".play-button") == "Play"


@pytest.mark.slow
def test_a_run_on_two_ranks_is_watched_playing_with_ever_newer_weights(tmp_path, browser):
    size = ["--preset", "debug", "--total-timesteps", "1000000", "--checkpoint-every", "2048", "--ranks", "2"]
    command = [
        sys.executable,
        "-m",
        "lockstep",
        "train",
        "snake",
        *size,
        "--run-name",
        "live",
        "--runs-dir",
        str(tmp_path),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as training:
        try:
            with serving(lambda name: tmp_path / name if name == "live" else None) as address:
                page = browser.new_page()
                page.goto(f"{address}/?run=live")
                seen = set()
                deadline = time.monotonic() + 300
                while len(seen - {""}) < 3:
                    assert training.poll() is None and time.monotonic() < deadline, page.inner_text("body")
                    seen.add(page.inner_text(".play-step"))
                    time.sleep(0.2)
                page.close()
        finally:
            training.terminate()
