"""The progress display: the metrics and lines that a workload chooses, within the width of the terminal."""

import io
import re

import pytest
from rich.console import Console

from lockstep.distributed.world import World
from lockstep.reporting import display
from lockstep.reporting.display import LiveBar, Narrated, PlainLines, headline, open_display

TAGS = (("train/loss", "loss", ".4f"),)


def test_a_workloads_own_metrics_are_shown_in_order_and_missing_ones_left_out():
    tags = (("rollout/episodes", "E:", ",.0f"), ("missing", "S:", ".2f"), ("elapsed", "T:", ""))
    metrics = {"time/global_fps": 54.0, "rollout/episodes": 1234.0}
    assert headline(metrics, tags, 3723.9) == ["54 steps/s", "E: 1,234", "T: 1:02:03"]


def test_plain_lines_show_the_step_and_the_metrics(capsys):
    lines = PlainLines((("rollout/return_mean", "R:", ".1f"),))
    lines.begin(1000)
    lines.progress(500, {"rollout/return_mean": 12.34})
    lines.close()
    assert capsys.readouterr().out == "step 500/1,000  R: 12.3\n"


def narrate(step, metrics):
    return [f"game {step // 10}", f"  loss {metrics['train/loss']:.1f}"]


def test_a_workloads_own_lines_are_printed_before_the_progress_line(capsys):
    lines = Narrated(PlainLines(TAGS), narrate, past=[])
    lines.begin(1000)
    lines.progress(500, {"time/global_fps": 1234.4, "train/loss": 0.25})
    assert capsys.readouterr().out == "game 50\n  loss 0.2\nstep 500/1,000  1,234 steps/s  loss 0.2500\n"


def test_a_narrator_first_gets_earlier_log_points_without_printing_them(capsys):
    heard = []
    Narrated(PlainLines(TAGS), lambda step, _: [str(heard.append(step))], past=[{"step": 10}, {"step": 20}])
    assert heard == [10, 20]
    assert capsys.readouterr().out == ""


def test_a_number_that_was_not_finite_is_left_out_for_a_narrator(capsys):
    heard = []
    Narrated(PlainLines(TAGS), lambda step, metrics: [str(heard.append(metrics))], [{"step": 1, "a": None, "b": 2.0}])
    assert heard == [{"step": 1, "b": 2.0}] and capsys.readouterr().out == ""


def test_a_narrator_that_fails_costs_one_warning(capsys):
    lines = Narrated(PlainLines(TAGS), narrate, past=[{"step": 10}])
    lines.begin(1000)
    lines.progress(500, {})
    lines.progress(510, {"train/loss": 0.25})
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "warning: the workload's own lines: KeyError: 'train/loss'; left out",
        "step 500/1,000  ",
        "game 51",
        "  loss 0.2",
    ]


def test_lines_in_quick_succession_are_held_back_and_the_last_is_shown_at_the_end(capsys):
    lines = PlainLines(TAGS)
    lines.begin(1000)
    for step in (1, 2, 3):
        lines.progress(step, {})
    assert capsys.readouterr().out == "step 1/1,000  \n"
    lines.close()
    assert capsys.readouterr().out == "step 3/1,000  \n"


def on_screen(monkeypatch, width, encoding="utf-8"):
    """A live bar on a terminal of this width, and what was written to it."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    console = Console(file=file, force_terminal=True, width=width, highlight=False, markup=False)
    monkeypatch.setattr(display, "Console", lambda **_: console)
    return LiveBar(WIDE), lambda: re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", raw.getvalue().decode(encoding)).split("\n")


WIDE = tuple((f"train/a_long_name_{number}", f"a long name {number}", ".4f") for number in range(8))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_bar_steps_and_time_left_fit_any_terminal_and_metrics_as_far_as_they_do(monkeypatch, width):
    bar, screen = on_screen(monkeypatch, width)
    bar.say(f"{'environments':12} {' '.join(['word'] * 40)}")
    bar.begin(10_000_000)
    bar.progress(2_500_000, {"time/global_fps": 12345.0, **{tag: 1.5 for tag, _, _ in WIDE}})
    bar.close()
    lines = [line for part in screen() for line in part.split("\r")]
    assert max(map(len, lines)) <= width
    last = [line for line in lines if "2,500,000/10,000,000" in line][-1]
    assert re.search(r"25% +\S+ left", last)
    shown = [line.rstrip() for line in lines if "12,345 steps/s" in line][-1]
    # Whole metrics only, as many as there is room for.
    assert re.fullmatch(r"12,345 steps/s(  a long name \d 1\.5000)*", shown)
    assert shown.count("a long name") == min((width - 14) // 22, 8)
    # The plan's second line stands under the text, not under the label.
    assert [line for line in lines if line.startswith(" " * 13 + "word")] or width == 200


def test_a_terminal_without_utf_8_gets_the_same_bar_in_ascii(monkeypatch):
    bar, screen = on_screen(monkeypatch, 80, "ascii")
    bar.begin(100)
    bar.progress(50, {})
    bar.close()
    assert any("50/100" in line for line in screen())


def test_quiet_shows_warnings_and_the_result_alone(capsys):
    quiet = open_display(World(), detail="quiet")
    quiet.say("ranks 2")
    quiet.begin(10)
    quiet.progress(1, {})
    quiet.say("warning: the disk is full")
    quiet.conclude("done: 10 steps")
    quiet.close()
    assert capsys.readouterr().out == "warning: the disk is full\ndone: 10 steps\n"
