"""Every line fits the terminal, whatever is asked; a pipe gets whole lines."""

import shutil

import pytest

from lockstep.cli.main import VERBS, main

LONG = "a-run-whose-name-tells-every-setting-learning_rate-0.0003-gamma-0.99-seed-7"
ANSWERS = [
    "list",
    "runs",
    "eval LONG --episodes 2",
    "play LONG --max-frames 1",
    "play LONG --video game.gif --max-frames 2 --episodes 1",
    "plan snake --preset debug --ranks 3",
    "verify LONG",
    "compare LONG demo",
    "report LONG --no-film",
    "export LONG",
    "examples",
    "new maze",
    "cache",
    "doctor --ranks 0",
    "train snake --explain batch_size",
    *(f"help {verb}" for verb in VERBS),
]
REFUSALS = [
    "eval LONG --policy nobody",
    "export LONG --format nothing",
    "train snake --n-envs 7 --lanes 8",
    "train snake --batchsize 64",
    "train gym --env-id Nothing-v3",
    "train trading --data nowhere",
    "compare LONG",
    "trade LONG --data SPY.csv --account paper.json",
    "predict LONG match.json",
    "arena LONG greedy",
    "resume nowhere",
]


@pytest.fixture
def at_long(at_runs):
    """A working directory with the run `demo`, and another one with a long name."""
    shutil.copytree(at_runs, at_runs.with_name(LONG))


@pytest.mark.parametrize("line", ANSWERS)
def test_every_line_of_an_answer_fits_eighty_columns(line, at_long, terminal):
    screen = terminal(80)
    assert main(line.replace("LONG", LONG).split()) == 0, screen.getvalue()
    assert screen.lines() and screen.too_wide(80) == []


@pytest.mark.parametrize("line", REFUSALS)
def test_every_line_of_a_refusal_fits_eighty_columns(line, at_long, terminal):
    screen = terminal(80)
    assert main(line.replace("LONG", LONG).split()) == 2
    assert screen.lines()[0].startswith("lockstep: ") and screen.too_wide(80) == []


def test_a_wide_terminal_gets_wide_lines(at_long, terminal):
    screen = terminal(200)
    assert main(["eval", LONG, "--policy", "nobody"]) == 2
    assert len(screen.lines()) == 1 and screen.too_wide(200) == []
