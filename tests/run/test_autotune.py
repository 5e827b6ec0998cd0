"""--autotune: which sizes are tried, and which one is taken."""

import pytest

from lockstep.cli.main import main
from lockstep.config.sources import to_yaml
from lockstep.errors import UserError
from lockstep.run import autotune
from lockstep.run.autotune import Attempt
from lockstep.storage.run_directory import RunDirectory
from lockstep.workloads import registry


def candidates(workload, preset, *words):
    return registry.load(workload).resolve(preset, overrides=["--autotune", *words]).alternatives


def rollouts(*words, preset="base"):
    return [(config.algorithm.n_envs, config.algorithm.n_steps) for config in candidates("snake", preset, *words)]


def test_rollouts_are_as_large_as_asked_for_and_the_one_asked_for_comes_first():
    assert rollouts() == [(4096, 32), (8192, 16), (2048, 64)]
    assert rollouts("--n-steps", "128", preset="small") == [(64, 128)]


def test_batch_and_gradient_steps_per_sample_stay():
    for config in candidates("snake", "base"):
        assert (config.algorithm.batch_size, config.algorithm.n_epochs) == (8192, 4)


def test_what_is_given_stays():
    assert rollouts("--n-envs", "1024", "--n-steps", "64") == [(1024, 64)]
    assert {n_envs for n_envs, _ in rollouts("--n-envs", "1024")} == {1024}


@pytest.mark.parametrize("workload", ["cricket", "control", "snakes3v3"])
def test_where_no_other_sizes_were_seen_to_learn_alike_there_is_nothing_to_try(workload):
    assert len(candidates(workload, "base")) == 1


def test_sizes_are_chosen_before_they_are_checked_and_leave_fifty_updates(tmp_path):
    with pytest.raises(UserError, match="total_timesteps 200000 is less than one update's"):
        registry.load("snake").resolve("base", overrides=["total_timesteps=200000", "n_steps=128", "batch_size=256"])
    # The guide's small.yaml on the preset base, whose 4,096 x 128 steps are more than the whole run.
    small = ("total_timesteps=200000", "n_steps=128", "batch_size=256")
    assert rollouts(*small) == [(16, 128)]
    assert all(
        10_000_000 // (envs * steps) >= 50 for envs, steps in rollouts("total_timesteps=10000000", preset="b200")
    )


def test_if_no_size_fits_the_settings_the_first_problem_is_told():
    with pytest.raises(UserError, match="batch_size 100"):
        candidates("snake", "base", "--batch-size", "100")


class Clock:
    """A clock that each measurement moves."""

    now = 0.0

    def measure(self, speeds, takes):
        def measured(config, seconds):
            self.now += takes
            speed = speeds[config.algorithm.n_envs, config.algorithm.n_steps]
            return speed if isinstance(speed, Attempt) else Attempt(config, speed)

        return measured


def choose(speeds, takes=10.0):
    clock, found = Clock(), candidates("snake", "base")
    everything = {(config.algorithm.n_envs, config.algorithm.n_steps): 1.0 for config in found} | speeds
    chosen, lines = autotune.fastest(found, clock.measure(everything, takes), autotune.BUDGET, lambda: clock.now)
    return (chosen.algorithm.n_envs, chosen.algorithm.n_steps), lines


def test_the_fastest_is_taken_and_every_size_has_a_line():
    chosen, lines = choose({(4096, 32): 100.0, (2048, 64): 90.0, (8192, 16): 106.0})
    assert chosen == (8192, 16)
    assert lines[0] == "autotune     n_envs 4096, n_steps 32: 100 steps/s"
    assert lines[-1] == "autotune     takes n_envs 8192, n_steps 16"
    assert len(lines) == 4


def test_sizes_that_there_is_no_time_for_are_not_tried():
    chosen, lines = choose({(2048, 64): 100.0}, takes=24.0)
    assert chosen == (4096, 32)
    assert lines[2] == "autotune     n_envs 2048, n_steps 64: not tried, the minute is over"


def test_sizes_that_are_hardly_faster_are_not_taken():
    assert choose({(4096, 32): 100.0, (8192, 16): 104.0})[0] == (4096, 32)


def test_if_the_sizes_asked_for_do_not_fit_others_are_taken():
    too_large = Attempt(candidates("snake", "base")[0], problem="does not fit into memory")
    chosen, lines = choose({(4096, 32): too_large, (2048, 64): 5.0})
    assert chosen == (2048, 64)
    assert lines[0].endswith("does not fit into memory")
    nothing = dict.fromkeys(rollouts(), too_large)
    assert choose(nothing)[0] == (4096, 32), "nothing could be measured"


class TwoOf:
    """The first two ranks of the tests' pool, as a pool of their own."""

    size = 2

    def __init__(self, pool):
        self._pool = pool

    def run(self, *args, **kwargs):
        return self._pool.run(*args, ranks=2, **kwargs)


def test_two_ranks_measure_a_configuration_and_drop_it(ranks):
    measure = autotune.on_ranks(TwoOf(ranks), "lockstep.cli.short_runs:time_anew", "snake", "cpu")
    attempt = measure(candidates("snake", "debug")[0], 2.0 * 60)
    assert attempt.speed > 0 and not attempt.problem


def test_a_run_that_exists_keeps_its_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(autotune, "RankPool", None)  # nothing may be tried
    name = ["--runs-dir", str(tmp_path), "--run-name", "old"]
    found = candidates("snake", "base", *name)
    run = RunDirectory(tmp_path / "old")
    run.path.mkdir()
    run.write_config(to_yaml(found[2].replace(autotune=False)), "snake")
    assert autotune.tuned(found, 1, "", "snake") == (found[2].replace(autotune=False), [])


def test_a_rank_of_another_launcher_leaves_the_choice_to_rank_0(monkeypatch):
    monkeypatch.setattr(autotune, "RankPool", None)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    found = candidates("snake", "base")
    assert autotune.tuned(found, 2, "", "snake") == (found[0].replace(autotune=False), [])


def test_a_resumed_run_is_not_tuned(tmp_path, capsys):
    run = RunDirectory(tmp_path / "old")
    run.path.mkdir()
    run.write_config(to_yaml(registry.load("snake").preset("debug")), "snake")
    assert main(["resume", str(run.path), "--autotune"]) == 2
    assert "a run that exists keeps its sizes" in capsys.readouterr().err


def test_after_a_rank_that_was_too_slow_others_are_tried_only_if_ranks_can_start_in_time():
    class Slow:
        size, calls = 1, 0

        def run(self, *_, timeout):
            self.calls += 1
            raise TimeoutError

    pool, config = Slow(), registry.load("snake").preset("debug")
    measure = autotune.on_ranks(pool, "a:b", "snake", "cpu", start=20.0)
    assert measure(config, 22.0).problem == "no update within 22 s" and pool.calls == 1
    assert measure(config, 22.0).problem == "not tried, the minute is over" and pool.calls == 1
    assert measure(config, 25.0).problem == "no update within 5 s" and pool.calls == 2


@pytest.mark.parametrize(
    ("device", "asked", "tried"),
    [("cuda", "auto", "graphs"), ("cuda", "default", "default"), ("cuda", "none", "none"), ("cpu", "auto", "auto")],
)
def test_on_a_gpu_nothing_is_compiled_for_a_trial_unless_asked_for(device, asked, tried):
    class Pool:
        size = 1

        def run(self, function, workload, text, *_, timeout):
            self.text = text
            return [{"steps": 1, "seconds": 1.0}]

    pool, config = Pool(), registry.load("snake").preset("base").replace(compile=asked)
    autotune.on_ranks(pool, "a:b", "snake", device)(config, 20.0)
    assert f"\ncompile: {tried}\n" in pool.text
