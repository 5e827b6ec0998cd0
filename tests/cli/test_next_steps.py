"""After a command a terminal shows what to do next, in commands that work; a pipe gets the answer alone."""

import re
import shlex
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from lockstep import output
from lockstep.cli import starting
from lockstep.cli.bench.report import Bench, Row
from lockstep.cli.main import main
from lockstep.cli.proof import FastProof, Gap, Proof
from lockstep.cli.sweep import PlannedSweep
from lockstep.reporting.sweep_report import SweepReport, SweptRun


def suggested(text):
    """The commands in the line that says what is next."""
    (line,) = re.findall(r"^next: lockstep (.*)$", text, re.MULTILINE)
    return [shlex.split(command) for command in line.split("  or  lockstep ")]


@pytest.fixture
def at_terminal(monkeypatch):
    monkeypatch.setattr(output, "is_terminal", lambda stream: stream is sys.stdout)


def test_a_command_that_is_to_be_copied_is_not_broken(at_terminal, monkeypatch, capsys):
    monkeypatch.setattr(output, "columns", lambda stream: 70)
    output.suggest("lockstep eval runs/snake-20261116-185329", "lockstep play runs/snake-20261116-185329")
    assert capsys.readouterr().out == (
        "next: lockstep eval runs/snake-20261116-185329\n  or: lockstep play runs/snake-20261116-185329\n"
    )


def test_a_command_that_is_too_long_is_continued_as_a_shell_allows_it(terminal):
    screen = terminal(40)
    output.suggest("lockstep eval runs/snake-20261116-185329 --episodes 100")
    assert screen.getvalue() == "next: lockstep eval \\\n  runs/snake-20261116-185329 \\\n  --episodes 100\n"


LINES = [
    "list",
    "runs",
    "plan snake --preset debug",
    "eval demo --episodes 1",
    "play demo --max-frames 1",
    "verify demo",
    "export demo",
    "report demo other --no-film",
    "compare demo other",
    # Its environment is a setting, without which the suggested training would not start.
    "check gym --env-id CartPole-v1 --steps 4 --ranks 1",
    "verify gym --env-id CartPole-v1 --ranks 1,2 --device cpu",
    "bench gym --env-id CartPole-v1 --preset debug",
    "sweep snake --preset debug --seed 1,2",
]


@pytest.fixture
def at_two_runs(at_runs, monkeypatch):
    """A working directory with two runs, in which verbs that start ranks find something at once."""
    shutil.copytree(at_runs, at_runs.with_name("other"))
    monkeypatch.setattr("lockstep.distributed.pool.RankPool", lambda *_, **__: nullcontext())
    monkeypatch.setattr(Proof, "fast", lambda *_: FastProof(1, Gap(0, 0, 0), Gap(0, 0, 0), []))
    monkeypatch.setattr(Proof, "on_end", lambda *_: iter(()))
    speeds = Row(1, [9.0], {"learning": 1e-3}, 1.0, 1.0), Row(2, [12.0], {"learning": 1e-3}, 1.0, 1.0)
    bench = Bench("gym", "debug", "CPU", 2, 1, 0.0, list(speeds), [])
    monkeypatch.setattr("lockstep.cli.bench.command._measure", lambda *_: bench)
    swept = SweptRun("seed-1", Path("runs/demo"), {"seed": 1}, "finished", score=3.0)
    report = SweepReport("s", Path("runs"), "eval/return_mean", (swept,))
    monkeypatch.setattr(PlannedSweep, "train", lambda *_: (report, 0))


@pytest.mark.parametrize("line", LINES)
def test_what_is_suggested_at_a_terminal_is_accepted(line, at_two_runs, at_terminal, capsys):
    assert main(line.split()) == 0
    commands = suggested(capsys.readouterr().out)
    # A run of no real training has nothing to resume; the rest starts no processes when it only explains itself.
    for words in commands:
        assert main([*words, "--help"]) == 0
        if words[0] == "train":
            assert main(["plan", *words[1:]]) == 0


@pytest.mark.parametrize("line", LINES)
def test_a_pipe_gets_the_answer_alone(line, at_two_runs, capsys):
    assert main(line.split()) == 0
    assert "next: " not in capsys.readouterr().out


@pytest.mark.parametrize(("more", "told"), [((), True), (("--quiet",), False)])
def test_a_training_that_ended_names_its_run(more, told, tmp_path, monkeypatch, at_terminal, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(starting, "_train_alone", lambda *_: 0)
    words = ["train", "snake", "--preset", "debug", "--run-name", "a", "--ranks", "1", *more]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert ("next: " in text) == told
    if told:
        assert suggested(text) == [[verb, "runs/a"] for verb in ("eval", "play")]
