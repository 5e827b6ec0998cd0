"""Every fault of an environment ends in one line with its number and what to do, in a run or before one."""

import json

import pytest

import lockstep
from lockstep.cli.main import main
from lockstep.errors import LockstepError, RunFailed, UserError
from lockstep.storage.checkpoint import weights_hash
from lockstep.workloads import registry

SMALL = {"preset": "debug", "max_updates": 8, "threads": 1, "checkpoint_every": 256, "eval_every": 0, "quiet": True}


def train(name, tmp_path, **settings):
    return lockstep.train(f"gym_envs:{name}", runs_dir=tmp_path, **(SMALL | settings))


BEFORE = {
    "Missing": "has no Missing; it has: Good, ",
    "BadConstructor": r"cannot be created \(TypeError.*missing",
    "FailingConstructor": r"cannot be created \(ValueError: no licence, .*gym_envs.py:\d+\)",
    "ExitingConstructor": r"cannot be created \(SystemExit: 7, .*gym_envs.py:\d+\)",
    "TextObservation": "which has no fixed size",
    "TextAction": "its actions are Text",
    "NoSeed": "TypeError.*seed",
    "OldReset": "lockstep check",
    "OldStep": "lockstep check",
    "TextReward": r"a reward is .* \(str\), and not one number",
    "NotAnEnv": "not a gymnasium.Env",
    "Recurses": r"fails when it is tried \(RecursionError: .*gym_envs.py:\d+\); `lockstep check`",
    "FailingClose": r"fails when it is tried \(RuntimeError: it stays open, .*gym_envs.py:\d+\)",
    "ColouredError": r"fails when it is tried \(ValueError: it is \\x1b\[31mred, .*gym_envs.py:\d+\)",
    "Exits": r"fails when it is tried \(SystemExit: 7, .*gym_envs.py:\d+\)",
    "NothingAllowed": "its action_mask allows no action, and its episode has not ended",
}


@pytest.mark.parametrize(("name", "message"), BEFORE.items(), ids=BEFORE)
def test_what_can_be_found_before_a_run_is_found_before_it(name, message, tmp_path):
    with pytest.raises(UserError, match=message) as caught:
        train(name, tmp_path)
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


DURING = {
    "NanReward": r"environment \d: its reward is nan after 7 steps",
    "InfiniteObservation": r"environment \d: its observation is inf after 3 steps",
    "WrongShape": r"environment \d: failed in step \(ValueError: an observation has shape \(3,\), .*says \(2,\)",
    "Raises": r"environment \d: failed in step \(RuntimeError: the simulator lost its mind, .*gym_envs.py:\d+\)",
    "NoMemory": r"environment \d: failed in step \(MemoryError.*gym_envs.py:\d+\)",
    "Exits": r"environment \d: failed in step \(SystemExit: 7, .*gym_envs.py:\d+\)",
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("name", "message"), DURING.items(), ids=DURING)
def test_a_fault_in_a_run_names_the_environment(name, message, workers, tmp_path):
    # `resume_by`: the trial before a run would find some of these faults already.
    with pytest.raises(LockstepError, match=message) as caught:
        train(name, tmp_path, resume_by="restart", env_workers=workers)
    assert "\n" not in str(caught.value)


RETURNED = {
    "NanReset": r"environment \d: its first observation is nan after \d+ steps",
    "MissingKey": r"failed in step \(ValueError: an observation has no 'goal', and the observation space has\);",
    "OutsideDiscrete": r"an observation is 7 above the first of 5, which is outside of its space\);",
    "NoReward": r"a reward is None \(NoneType\), and not one number\);",
    "NothingAllowed": "its action_mask allows no action, and its episode has not ended",
    "NoSecondChoice": "its action_mask allows no action of choice 1, and its episode has not ended",
    "LongerMask": r"its action_mask has 3 entries, and 2 at first\);",
}


@pytest.mark.parametrize(("name", "message"), RETURNED.items(), ids=RETURNED)
def test_what_an_environment_returned_wrongly_is_named_with_its_number(name, message, tmp_path):
    with pytest.raises(RunFailed, match=message) as caught:
        train(name, tmp_path, resume_by="restart")
    assert str(caught.value).startswith("environment ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["HangingReset", "HangingStep"])
def test_an_environment_that_does_not_return_ends_the_run(name, workers, tmp_path):
    with pytest.raises(RunFailed, match=r"environment \d: did not return from (reset|step) for 1 s"):
        train(name, tmp_path, resume_by="restart", env_workers=workers, env_timeout=1)


def test_a_worker_that_is_killed_is_named_with_its_environments(tmp_path):
    with pytest.raises(RunFailed, match=r"environments 0 to 3: worker \d+ was killed by signal 9.*lockstep resume"):
        train("Dies", tmp_path, resume_by="restart", env_workers=2)


def test_a_run_that_failed_is_resumed_once_its_environment_is_corrected(tmp_path, monkeypatch):
    import gym_envs

    with pytest.raises(RunFailed, match="lost its mind"):
        train("Raises", tmp_path, resume_by="replay", run_name="faulty")
    monkeypatch.setattr(gym_envs.Raises, "step", gym_envs.Good.step)
    run = train("Raises", tmp_path, resume_by="replay", run_name="faulty")
    assert run.status.step == 8 * 256


def train_with_fault(fault, folder, **settings):
    """Train an environment that does this in the middle of the run."""
    file = folder / "fault.txt"
    file.write_text(fault)
    return train("FailsLate", folder, env_kwargs=json.dumps({"fault_file": str(file)}), sync="exact", **settings)


@pytest.mark.parametrize("fault", ["nan", pytest.param("kill", marks=pytest.mark.slow)])
def test_a_run_that_failed_late_ends_in_the_weights_of_an_undisturbed_one(fault, tmp_path):
    settings = {"run_name": "faulty", "env_workers": 2}
    with pytest.raises(RunFailed, match="`lockstep resume`"):
        train_with_fault(fault, tmp_path, **settings)
    assert len(list((tmp_path / "faulty" / "checkpoints").iterdir())) == 3
    resumed, undisturbed = train_with_fault("", tmp_path, **settings), train_with_fault("", tmp_path)
    assert weights_hash(resumed.weights()) == weights_hash(undisturbed.weights())


def test_a_function_that_cannot_be_sent_is_refused_in_one_line(tmp_path):
    import threading

    import gym_envs

    lock = threading.Lock()

    def make():
        assert lock is not None
        return gym_envs.Good()

    with pytest.raises(UserError, match=r"cannot be sent to other processes \(TypeError.*ranks=1 and no"):
        lockstep.train(make, runs_dir=tmp_path, ranks=2, **SMALL)
    # One rank without workers needs no other process.
    assert lockstep.train(make, runs_dir=tmp_path, **SMALL).status.step == 8 * 256


CHECKS = {
    "Good": "",
    "SavesState": "",
    "LyingSpace": "outside of its space; widen low and high",
    "WrongType": "the observation is float64, and its space float32",
    "WrongShape": "shape (3,)",
    "Unseeded": "reset(seed=3) twice gives two observations",
    "ForgetsState": "a restored environment differs after",
    "OldStep": "returned 4 values; it must return 5 values",
    "NanReward": "its reward is nan",
    "Exits": "SystemExit: 7, ",
    "FailingClose": "RuntimeError: it stays open, ",
    "ColouredError": r"ValueError: it is \x1b[31mred, ",
}


@pytest.mark.parametrize(("name", "expected"), CHECKS.items(), ids=CHECKS)
def test_check_says_what_is_wrong_a_line_each(name, expected, capsys):
    code = main(["check", f"gym_envs:{name}", "--ranks", "1"])
    printed = capsys.readouterr()
    assert code == (3 if expected else 0), printed
    lines = [line for line in printed.out.splitlines() if line.startswith("WRONG")]
    assert bool(lines) == bool(expected)
    if expected:
        assert any(expected in line for line in lines), lines


@pytest.mark.slow  # starts ranks; the check itself is tested above
def test_check_compares_one_rank_with_two(capsys):
    assert main(["check", "gym_envs:Good", "--steps", "40"]) == 0
    assert "one hash on 1 and 2 ranks" in capsys.readouterr().out


def test_an_environment_that_cannot_be_restored_resumes_in_fast_and_is_refused_in_exact(tmp_path):
    settings = {"run_name": "anew", "max_updates": 2}
    run = train("Unseeded", tmp_path, **settings, sync="exact")
    assert run.config["resume_by"] == "restart"
    with pytest.raises(UserError, match="cannot be resumed with sync exact"):
        train("Unseeded", tmp_path, **(settings | {"max_updates": 4}), sync="exact")
    fast = {"run_name": "fast", "max_updates": 2}
    train("Unseeded", tmp_path, **fast)
    assert train("Unseeded", tmp_path, **(fast | {"max_updates": 4})).status.step == 4 * 256


def test_a_file_with_several_environments_asks_which(tmp_path):
    path = tmp_path / "two.py"
    path.write_text("class A:\n    def reset(self): ...\n    def step(self, a): ...\nclass B(A): ...\n")
    with pytest.raises(UserError, match=r"has several \(A, B\); name one: .*two.py:A"):
        registry.load(str(path))
    path_of_none = tmp_path / "none.py"
    path_of_none.write_text("x = 1\n")
    with pytest.raises(UserError, match=r"has no subclass of .* and no environment class"):
        registry.load(str(path_of_none))
    broken = tmp_path / "broken.py"
    broken.write_text("def (:\n")
    with pytest.raises(UserError, match=r"cannot be imported \(SyntaxError.*broken.py:1\)"):
        registry.load(str(broken))
