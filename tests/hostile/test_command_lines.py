"""Ten thousand command lines that nobody would write: each is one line or a plan, never a traceback."""

import random
import string

import pytest

from lockstep.cli.main import VERBS, main
from lockstep.workloads import registry

LINES = 10_000
ATTACKS = [
    "a.__class__=1",
    "optimizer._target_=os.system",
    "__class__.__init__.__globals__=1",
    "{0.__class__}",
    "${env:HOME}",
    "$(touch canary)",
    "`touch canary`",
    "!!python/object/apply:os.system [touch canary]",
    "&a [*a,*a,*a]",
    "../../canary",
    "canary\x00.yaml",
    "\n\n",
    "nan",
    "-inf",
    "1e30",
    "1e999",
    "-1",
    "0x10",
    "0b1",
    "1_0_0",
    "\uff11\uff12",
    "\u0663",
    "true",
    "null",
    "~",
    "[]",
    "{}",
    "''",
    "=",
    "--",
    "---",
    "--=",
    "=--",
    "9" * 400,
    "x" * 5000,
    "\ud800",
    "%s%n",
    "💥",
]
# Verbs that only look; the others would start ranks for the lines that happen to be right.
WORKING = {"train", "resume", "verify", "bench", "doctor", "check", "new", "sweep", "watch"}
LOOKING = ["plan", "list", "runs", "help", *sorted(set(VERBS) - WORKING)]


def test_no_command_line_ends_in_a_traceback(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbers = random.Random(31)
    fields = {name: _fields(name) for name in registry.names()}
    for number in range(LINES):
        words = _line(numbers, fields)
        code = main(words)
        told = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("lockstep: note: ")]
        assert code in (0, 2, 4), (number, words, code)
        if code:
            assert len(told) == 1, (number, words, told)
            assert told[0].startswith("lockstep: "), (number, words, told)
            assert len(told[0]) < 2000, (number, words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("verb", ["eval", "play", "export", "report", *sorted(WORKING - {"new"})])
def test_an_attack_in_place_of_a_name_is_refused(verb, attack, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([verb, attack]) in (2, 4)
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def _line(numbers, fields):
    workload = numbers.choice(list(fields))
    verb = numbers.choice(["plan"] * 6 + LOOKING)
    subject = workload if numbers.random() < 0.8 else _word(numbers)
    words = [verb, subject]
    for _ in range(numbers.randrange(4)):
        key = numbers.choice(fields[workload]) if numbers.random() < 0.7 else _word(numbers)
        value = _word(numbers)
        words += numbers.choice([[f"--{key}", value], [f"{key}={value}"], [f"--{key}={value}"], [value], [f"--{key}"]])
    return words


def _word(numbers):
    kind = numbers.random()
    if kind < 0.4:
        return numbers.choice(ATTACKS)
    if kind < 0.7:
        return str(numbers.choice([0, 1, -1, 2, 7, 8, 64, 1e-3, 0.5, 10**9, 2**63, 1e308]))
    return "".join(numbers.choice(string.printable) for _ in range(numbers.randrange(12)))


def _fields(workload):
    groups = registry.load(workload).layout().schema.described()
    return [name for group in groups for item in group.fields for name in (item.name, *item.aliases)]
