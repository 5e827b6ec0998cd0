"""Real faults on real ranks: whatever happens to one of them, the run ends in the undisturbed run's weights."""

import json

import pytest

KILLS = "; ".join(f"kill@rank=~0..1,at=~{2 * n}..{2 * n + 2},seed={n},attempt={n}" for n in range(3))


@pytest.mark.slow
def test_three_kills_end_in_the_undisturbed_hash_with_no_log_point_missing_or_twice(
    start, tools, undisturbed, tmp_path
):
    output = start(*tools.snake(tmp_path, "run", "--ranks", "2"), faults=KILLS).ends()
    assert output.count("was killed by SIGKILL") == 3
    assert tools.hash_of(tmp_path / "run") == undisturbed
    assert [point["step"] for point in tools.logged(tmp_path / "run")] == [256 * update for update in range(1, 11)]


@pytest.mark.slow
def test_ranks_killed_while_they_save_cost_no_checkpoint_that_stood(start, tools, undisturbed, tmp_path):
    faults = "kill@place=publish,rank=0,at=2; kill@place=write,rank=1,at=9,attempt=1"
    output = start(*tools.snake(tmp_path, "run", "--ranks", "2"), faults=faults).ends()
    assert output.count("was killed by SIGKILL") == 2
    assert "an unfinished write, ignored" in output
    assert "resumed from step-000000000512" in output
    assert tools.hash_of(tmp_path / "run") == undisturbed


@pytest.mark.slow
def test_out_of_memory_on_one_rank_halves_the_micro_batches_of_all(start, tools, tmp_path):
    output = start(*tools.snake(tmp_path, "run", "--ranks", "2"), faults="memory@rank=1,at=3").ends()
    assert "rank 1 ran out of memory at step 768 (learning); all ranks continue" in output
    assert "(--grad-accum 2)" in output and "64 (32 + 32) in 2 parts" in output
    assert len(tools.logged(tmp_path / "run")) == 10


def test_out_of_memory_on_the_only_rank_is_answered_in_the_same_process(start, tools, tmp_path):
    done = start(*tools.snake(tmp_path, "run", "--total-timesteps", "1024"), faults="memory@at=2")
    output = done.ends(3)
    # The failpoint belongs to the process, so it strikes until the batch of 64 cannot be split among 8 lanes any more.
    assert "--grad-accum 2" in output and "--grad-accum 8" in output
    assert output.splitlines()[-1].startswith("lockstep: out of memory, and batches cannot be split further")


def test_a_signal_to_one_rank_alone_stops_all_at_one_step_with_one_checkpoint(start, tools, undisturbed, tmp_path):
    words = tools.snake(tmp_path, "run", "--ranks", "2", "--checkpoint-every", "0")
    output = start(*words, faults="terminate@rank=1,at=3").ends(75)
    assert output.count("stopped on request at step") == 1
    assert len(list((tmp_path / "run/checkpoints").glob("step-*"))) == 1
    start(*words).ends()
    assert tools.hash_of(tmp_path / "run") == undisturbed


def test_a_logger_that_hangs_and_weights_that_drift_apart_are_told(start, tools, tmp_path):
    words = tools.snake(tmp_path, "run", "--ranks", "2", "--check-every", "1", "--max-restarts", "0")
    output = start(*words, faults="slow@place=logger,seconds=300; diverge@rank=1,at=4").ends(3)
    assert "replicas diverged at step 1,280: rank(s) 1 hold other weights than rank 0" in output
    assert len(tools.logged(tmp_path / "run")) == 4
    assert json.loads((tmp_path / "run/status.json").read_text())["state"] == "stopped"


@pytest.mark.slow
def test_a_restarted_run_keeps_the_settings_it_was_started_with_though_their_file_has_changed(start, tools, tmp_path):
    settings = tmp_path / "settings.yaml"
    settings.write_text("gamma: 0.97\n")
    words = tools.snake(tmp_path, "run", "--ranks", "2", "--config", str(settings), "--max-updates", "8")
    going = start(*words, faults="slow@at=2,seconds=1; kill@rank=1,at=6")
    tools.wait_until(lambda: (tmp_path / "run/metrics.jsonl").exists())
    settings.write_text("gamma: 0.5\n")
    assert "restarting" in going.ends()
    assert "gamma: 0.97\n" in (tmp_path / "run/config.yaml").read_text()
