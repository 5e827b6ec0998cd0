"""The progress line: what a workload wants told, in its own words."""

from lockstep.core.reporting.display import PlainLines, headline


def test_a_workload_s_own_words_stand_in_their_order_and_missing_numbers_are_left_out():
    tags = (("rollout/episodes", "E:", ",.0f"), ("missing", "S:", ".2f"), ("elapsed", "T:", ""))
    metrics = {"time/global_fps": 54.0, "rollout/episodes": 1234.0}
    assert headline(metrics, tags, 3723.9) == "54 steps/s  E: 1,234  T: 1:02:03"


def test_plain_lines_tell_where_the_run_is(capsys):
    lines = PlainLines(1000, (("rollout/return_mean", "R:", ".1f"),))
    lines.progress(500, {"rollout/return_mean": 12.34})
    lines.close()
    assert capsys.readouterr().out == "step 500/1,000  R: 12.3\n"
