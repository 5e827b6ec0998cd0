"""The progress display: the metrics and lines that a workload chooses."""

from lockstep.reporting.display import Narrated, PlainLines, headline

TAGS = (("train/loss", "loss", ".4f"),)


def test_a_workloads_own_metrics_are_shown_in_order_and_missing_ones_left_out():
    tags = (("rollout/episodes", "E:", ",.0f"), ("missing", "S:", ".2f"), ("elapsed", "T:", ""))
    metrics = {"time/global_fps": 54.0, "rollout/episodes": 1234.0}
    assert headline(metrics, tags, 3723.9) == "54 steps/s  E: 1,234  T: 1:02:03"


def test_plain_lines_show_the_step_and_the_metrics(capsys):
    lines = PlainLines(1000, (("rollout/return_mean", "R:", ".1f"),))
    lines.progress(500, {"rollout/return_mean": 12.34})
    lines.close()
    assert capsys.readouterr().out == "step 500/1,000  R: 12.3\n"


def narrate(step, metrics):
    return [f"game {step // 10}", f"  loss {metrics['train/loss']:.1f}"]


def test_a_workloads_own_lines_are_printed_before_the_progress_line(capsys):
    lines = Narrated(PlainLines(1000, TAGS), narrate, past=[])
    lines.progress(500, {"time/global_fps": 1234.4, "train/loss": 0.25})
    assert capsys.readouterr().out == "game 50\n  loss 0.2\nstep 500/1,000  1,234 steps/s  loss 0.2500\n"


def test_a_narrator_first_gets_earlier_log_points_without_printing_them(capsys):
    heard = []
    Narrated(PlainLines(1000, TAGS), lambda step, _: [str(heard.append(step))], past=[{"step": 10}, {"step": 20}])
    assert heard == [10, 20]
    assert capsys.readouterr().out == ""


def test_lines_in_quick_succession_are_held_back_and_the_last_is_shown_at_the_end(capsys):
    lines = PlainLines(1000, TAGS)
    for step in (1, 2, 3):
        lines.progress(step, {})
    assert capsys.readouterr().out == "step 1/1,000  \n"
    lines.close()
    assert capsys.readouterr().out == "step 3/1,000  \n"
