"""Two runs side by side, with numbers worked out by hand."""

import json

import pytest

from lockstep.cli.main import main


def compared(capsys, *words):
    assert main(["compare", *words]) == 0
    return capsys.readouterr().out


def test_settings_that_differ_are_shown_with_both_values(record, capsys):
    record("a", learning_rate=0.1, n_envs=16)
    record("b", learning_rate=0.2, n_envs=16)
    found = json.loads(compared(capsys, "a", "b", "--json"))
    assert found["settings"] == {"learning_rate": ["0.1", "0.2"]} and found["system"] == {}


def test_curves_are_compared_at_equal_steps(record, capsys):
    record("a")
    record("b", curve=[2.0 * step for step in range(10, 101, 10)])
    found = json.loads(compared(capsys, "a", "b", "--json"))
    curve = next(curve for curve in found["curves"] if curve["tag"] == "rollout/return_mean")
    # A runs from 10 to 100: mean 55, best 100, last tenth 91 to 100. B has twice that.
    assert (curve["mean"]["a"]["mean"], curve["mean"]["difference"]["mean"]) == (55.0, 55.0)
    assert (curve["best"]["a"]["mean"], curve["last"]["a"]["mean"]) == (100.0, pytest.approx(95.5))
    assert (curve["first_step"], curve["last_step"]) == (10, 100)


def test_two_runs_have_intervals_over_episodes(record, capsys):
    record("a", returns=(1.0, 2.0, 3.0))
    record("b", returns=(11.0, 12.0, 13.0))
    found = json.loads(compared(capsys, "a", "b", "--json"))
    difference = found["results"]["return_mean"]["difference"]
    # Two variances of 1 over three episodes each: 10 +- 2.7764 * sqrt(2 / 3).
    assert found["intervals_over"] == "episodes" and difference["mean"] == 10.0
    assert difference["low"] == pytest.approx(10 - 2.2669, abs=1e-3)


def test_groups_have_intervals_over_runs(record, capsys):
    for seed in (1, 2, 3):
        record(f"a{seed}", seed=seed, returns=(float(seed),))
        record(f"b{seed}", seed=seed, returns=(10.0 + seed,))
    found = json.loads(compared(capsys, "a1,a2,a3", "b1,b2,b3", "--json"))
    difference = found["results"]["return_mean"]["difference"]
    assert found["intervals_over"] == "runs" and difference["low"] == pytest.approx(10 - 2.2669, abs=1e-3)
    assert found["settings"] == {}, "the seeds are the same on both sides"


def test_equal_weights_at_every_step_are_the_same_run(record, capsys):
    record("one")
    record("two", ranks=2)
    text = compared(capsys, "one", "two")
    assert "the same bits at each of 10 steps, up to step 100" in text and "ranks" in text


def test_weights_that_part_are_told_with_both_steps(record, capsys):
    values = [float(step) for step in range(10, 101, 10)]
    record("a")
    record("b", curve=[*values[:6], *(value + 1 for value in values[6:])], weights=(1.0, 9.0))
    told = " ".join(compared(capsys, "a", "b").split())
    assert "the same bits up to step 60, different from step 70 on" in told
    assert "only one experiment in exact mode has the same bits" in told, "fast promised nothing"


def test_damaged_weights_are_not_compared(record, capsys):
    for name in ("a", "b"):
        path = record(name)
        (path / "metrics.jsonl").unlink()
        for step in (50, 100):
            (path / "checkpoints" / f"step-{step:012d}" / "model.safetensors").write_bytes(b"")
    assert "no step at which both have a hash" in compared(capsys, "a", "b")


def test_every_line_fits_eighty_columns_and_no_control_character_gets_through(record, capsys):
    long = "x" * 300
    record("a" * 100, data=long, label='"\\e[31m"')
    record("b" * 100, data=long + "y", label="plain", returns=(1e8, 2e9, -3e12))
    text = compared(capsys, "a" * 100, "b" * 100)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "0 sides given"),
        (["a"], "1 side given"),
        (["a", "b", "c"], "3 sides given"),
        (["a", "nothing"], "neither a run"),
        (["a,a", "b"], "named twice"),
        (["a", ","], "names 0 runs"),
        (["a", "b", "--jsn"], "the nearest name is"),
    ],
)
def test_wrong_words_get_one_line(record, capsys, words, expected):
    record("a")
    record("b")
    assert main(["compare", *words]) == 2
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1
