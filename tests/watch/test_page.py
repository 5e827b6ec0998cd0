"""The page in a real browser, against a real run on two ranks."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="the page is driven by playwright")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
    pytest.mark.slow,
]
TRAIN = [sys.executable, "-m", "lockstep", "train", "snake", "--preset", "debug", "--sync", "exact"]
LENGTH = ["--total-timesteps", "200000", "--checkpoint-every", "1024", "--eval-every", "0"]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        # Chromium's own sandbox does not work for root, which tests in containers are.
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, tmp_path):
    """A page on all runs of tmp_path, and every address that it asked for."""
    command = [sys.executable, "-m", "lockstep", "watch", "--runs-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        address = re.search(r"http\S+", server.stdout.readline())[0]
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        page.asked, page.problems = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda message: page.problems.append(message.text) if message.type == "error" else None)
        page.goto(address)
        yield page
        context.close()
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0


@pytest.fixture
def train(tmp_path):
    """Start training; what still runs at the end is killed, ranks with it."""
    started = []

    def start(name, ranks, *words):
        command = [*TRAIN, *(words or LENGTH), "--runs-dir", str(tmp_path), "--run-name", name, "--ranks", str(ranks)]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def row(page, name):
    return page.locator(f'.run[data-run="{name}"]')


def test_a_run_on_two_ranks_appears_moves_plays_and_shows_its_killed_rank(page, train, tmp_path, monkeypatch):
    page.wait_for_selector(".empty")
    # After some updates, the first checkpoint among them, so that there are curves to move before.
    monkeypatch.setenv("LOCKSTEP_FAULTS", "kill@rank=1,at=20")
    train("two", 2)
    began = tmp_path / "two" / "config.yaml"
    while not began.exists():
        time.sleep(0.02)
    row(page, "two").wait_for(timeout=3000)
    page.locator("#charts canvas").first.wait_for()
    row(page, "two").locator(".state.running").wait_for()
    before = row(page, "two").locator(".facts").first.inner_text()
    drawn = page.locator("#charts canvas").first.evaluate("canvas => canvas.toDataURL()")
    sync_api.expect(row(page, "two").locator(".facts").first).not_to_have_text(before, timeout=30_000)
    page.wait_for_timeout(1500)
    assert page.locator("#charts canvas").first.evaluate("canvas => canvas.toDataURL()") != drawn, "the curve moved"
    killed = page.locator(".timeline .kind.restart")
    killed.first.wait_for(timeout=60_000)
    assert "rank 1 was killed by SIGKILL" in page.locator(".timeline").inner_text()
    page.locator(".timeline .kind.resumed").first.wait_for(timeout=60_000)
    row(page, "two").locator(".state.running").wait_for()
    page.locator("#play").get_by_role("button", name="Play").click()
    page.locator("#play [data-frames]").wait_for(timeout=60_000)
    page.locator("#play").get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="check hashes").first.click()
    page.get_by_text("every hash matches").first.wait_for()
    assert page.problems == []
    assert all(re.match(r"(http://127\.0\.0\.1:\d+/|data:|blob:)", address) for address in page.asked)
    assert "token" not in page.url


def test_hashes_of_one_and_two_ranks_agree_on_the_screen(page, train):
    short = ["--total-timesteps", "1024", "--eval-every", "0"]
    for ranks in (1, 2):
        assert train(f"on-{ranks}", ranks, *short).wait(240) == 0
    verdict = page.locator("#proof .verdict.same")
    verdict.wait_for(timeout=30_000)
    sync_api.expect(verdict).to_have_text("✓ Same bits on 1 and 2 ranks up to step 1,024")
    cells = page.locator("#proof tr.same").first.locator("td.hash").all_inner_texts()
    assert len(cells) == 2 and len(set(cells)) == 1 and re.fullmatch("[0-9a-f]{10}", cells[0])
    assert page.problems == []


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_fits_and_follows_the_keyboard(browser, page, write_run, width, theme):
    name = "<img src=x onerror=alert(1)>"
    for number in range(3):
        points = [{"step": 10 * i, "time": float(i), "rollout/return_mean": i * number, name: 1.0} for i in range(30)]
        write_run(f"run-{number}", points, seed=number, network=f'"{name}"' if number else "mlp")
    write_run("a-name-that-tells-every-setting-" + "-".join(map(str, range(30))), seed=7)
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=theme)
    row(page, "run-2").wait_for()
    page.locator("#charts canvas").first.wait_for()
    assert page.locator("html").get_attribute("data-theme") == theme
    assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, "nothing sticks out"
    assert page.locator("img").count() == 0 and page.get_by_text(name).count() > 0, "texts stay texts"
    page.keyboard.press("j")
    page.locator("#detail h2").wait_for()
    page.keyboard.press("x")
    assert page.locator(".run.off").count() == 1
    page.keyboard.press("b")
    assert page.locator("#bands").is_checked()
    page.keyboard.press("t")
    assert page.locator("#axis").input_value() == "time"
    page.keyboard.press("d")
    assert page.locator("html").get_attribute("data-theme") != theme
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.locator("#filter").fill("seed=1")
    sync_api.expect(page.locator(".run")).to_have_count(1)
    assert page.problems == []


def test_dragging_a_chart_zooms_all_of_them(page, write_run):
    tags = ("rollout/return_mean", "train/policy_loss")
    write_run("a", [{"step": i, "time": float(i), **dict.fromkeys(tags, float(i % 7))} for i in range(5000)])
    canvas = page.locator("#charts .u-over")
    canvas.nth(1).wait_for()
    box = canvas.first.bounding_box()
    asked = len(page.asked)
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 60, steps=5)
    page.mouse.up()
    page.locator("#unzoom").wait_for()
    page.wait_for_timeout(500)
    zoomed = [address for address in page.asked[asked:] if "from=" in address]
    assert all(
        re.findall("tag=([^&]+)", address) == ["rollout%2Freturn_mean", "train%2Fpolicy_loss"] for address in zoomed
    )
    assert len(zoomed) == 1, "one question for both charts"
    page.keyboard.press("0")
    page.locator("#unzoom").wait_for(state="hidden")
    # Changed twice while an answer is under way: the last choice counts for every chart.
    asked = len(page.asked)
    for key in "sss":
        page.keyboard.press(key)
    page.wait_for_timeout(1500)
    last = [address for address in page.asked[asked:] if "series" in address][-1]
    assert "smooth=25" in last and last.count("tag=") == 2
    assert page.problems == []


def order(page):
    return page.locator(".run").evaluate_all("rows => rows.map((row) => row.dataset.run)")


def test_a_click_selects_the_run_under_the_pointer_whatever_the_news(page, write_run):
    paths = {name: write_run(name, [{"step": 1, "time": 1.0, "loss": 1.0}]) for name in ("a", "b", "c")}

    def touch(name, when):
        status = json.loads((paths[name] / "status.json").read_text()) | {"updated": when}
        (paths[name] / "status.json").write_text(json.dumps(status))

    touch("a", 1e9 + 3), touch("b", 1e9 + 2), touch("c", 1e9 + 1)
    page.locator(".run").nth(2).wait_for()
    page.wait_for_timeout(1500)
    assert order(page) == ["a", "b", "c"]
    row(page, "b").hover()
    touch("c", 1e9 + 4)
    page.wait_for_timeout(1500)
    assert order(page) == ["a", "b", "c"], "nothing moves under the pointer"
    page.mouse.down()
    write_run("d", [{"step": 1, "time": 1.0, "loss": 1.0}])
    page.wait_for_timeout(1500)
    page.mouse.up()
    sync_api.expect(row(page, "b")).to_have_class(re.compile("selected"))
    sync_api.expect(page.locator(".run")).to_have_count(4)
    assert order(page) == ["a", "b", "c", "d"]
    page.mouse.move(900, 500)
    sync_api.expect(page.locator(".run").first).to_have_attribute("data-run", "c")
    assert order(page) == ["c", "a", "b", "d"] and page.problems == []
