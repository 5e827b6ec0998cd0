"""The ends of curves that a page lacks: with what it has they are the whole curve."""

import json
import math
import random
import shutil
import subprocess
from pathlib import Path

import pytest

import lockstep.watch
from lockstep.watch.columns import Columns
from lockstep.watch.curve_parts import Cursor, View, part

SCRIPT = Path(lockstep.watch.__file__).parent / "static" / "curves.js"


def extended(known, found):
    """As the page does it."""
    if known is None or found["since"] is None:
        return found
    kept = [place for place in range(len(known["x"])) if known["x"][place] < found["since"]]
    return found | {name: [known[name][place] for place in kept] + found[name] for name in ("x", "y")}


def grown(columns, more, noise):
    for _ in range(more):
        row = len(columns)
        values = {"loss": noise.random()} | ({"eval/x": noise.random()} if row % 7 == 0 else {})
        columns.add({"step": 3 * row, "time": 1e9 + row / 3, **values})


@pytest.mark.parametrize("tag", ["loss", "eval/x"])
@pytest.mark.parametrize(
    "view",
    [
        View(points=50),
        View(points=10_000),
        View(axis="time", points=50),
        View(smooth=11, points=50),
        View(smooth=11, points=10_000),
        View(span=(30.0, 5000.0), points=50),
    ],
)
def test_the_ends_of_a_growing_curve_add_up_to_what_a_new_page_gets(tag, view):
    noise, columns, known = random.Random(1), Columns(), None
    sent = []
    for _ in range(120):
        grown(columns, noise.randrange(9), noise)
        cursor = None if known is None else Cursor.parse(known["cursor"])
        found = part(columns, 0, tag, view, cursor)
        known = extended(known, found)
        whole = part(columns, 0, tag, view, None)
        # A page that was there all the time may have kept a point more of each bucket.
        pairs = list(zip(known["x"], known["y"], strict=True))
        assert set(zip(whole["x"], whole["y"], strict=True)) <= set(pairs)
        assert known["x"] == sorted(known["x"]) and len(known["x"]) <= 1.5 * max(view.points, len(whole["x"]))
        sent.append((found["since"], len(found["x"])))
    # The width of a bucket doubles now and then, and averages change as long as there are less than a window of them.
    assert sum(since is None for since, _ in sent) <= (12 if view.smooth == 1 else 40)
    assert max(count for since, count in sent if since is not None) < 40


@pytest.mark.parametrize("known", [Cursor(1, 0.0, 30.0), Cursor(0, 4.0, 30.0), None])
def test_a_page_that_has_another_reading_or_other_buckets_gets_everything(known):
    columns = Columns()
    grown(columns, 20, random.Random(2))
    found = part(columns, 0, "loss", View(), known)
    assert found["since"] is None and len(found["x"]) == 20
    assert part(columns, 0, "loss", View(), Cursor.parse(found["cursor"]))["x"] == [57]


@pytest.mark.parametrize("text", ["", "1", "a:b:c", "1:2:3:4", "1:1.0:inf", "1:1.0:nan", "0:0.0:" + "9" * 400])
def test_what_is_no_cursor_is_none(text):
    assert Cursor.parse(text) is None


def test_a_run_without_points_and_points_at_one_place_have_curves():
    assert part(Columns(), 0, "loss", View(), None)["x"] == []
    columns = Columns()
    for step in range(50):
        columns.add({"step": step, "time": 1.0, "loss": float(step)})
    found = part(columns, 0, "loss", View(axis="time", points=10), None)
    assert set(found["y"]) == {0.0, 49.0} and math.isfinite(Cursor.parse(found["cursor"]).width)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js on this machine")
def test_the_page_puts_an_end_in_place_of_its_own():
    cases = [
        [None, {"since": None, "x": [1], "y": [5]}],
        [{"x": [1, 2, 4], "y": [5, 6, 7]}, {"since": 2, "x": [3, 4], "y": [8, 9]}],
        [{"x": [1, 2, 4], "y": [5, 6, 7]}, {"since": 9, "x": [], "y": []}],
    ]
    program = SCRIPT.read_text().replace('import { ask } from "./dom.js";', "")
    program += f"console.log(JSON.stringify({json.dumps(cases)}.map(([a, b]) => extended(a ?? undefined, b).x)));"
    told = subprocess.run(["node", "--input-type=module"], input=program, capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == [[1], [1, 3, 4], [1, 2, 4]]
