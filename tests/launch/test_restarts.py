import json
import signal

import pytest

from lockstep.launch.failures import TAIL_LINES, Exit, cause, last_output, nccl_log, reason, report
from lockstep.launch.heartbeat import Reading
from lockstep.launch.restarts import RestartPolicy

LOST_PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:36242"
KILLED = -signal.SIGKILL


def ended(rank, code, output="", at=0.0, step=-1, **more):
    return Exit(rank, code, output, at, Reading(1, step, "learning" if step >= 0 else ""), **more)


def test_a_kill_is_the_cause_even_if_its_peers_are_noticed_first():
    exits = [ended(0, 1, LOST_PEER, at=1), ended(1, KILLED, at=2)]
    assert cause(exits).rank == 1


def test_the_first_exception_that_blames_no_peer_is_the_cause():
    exits = [ended(0, 1, LOST_PEER, at=1), ended(1, 1, "ValueError: b", at=3), ended(2, 1, "ValueError: a", at=2)]
    assert cause(exits).rank == 2


def test_an_abort_may_follow_an_exception():
    exits = [ended(0, -signal.SIGABRT, "NCCL communicator was aborted", at=1), ended(1, 1, "ValueError", at=2)]
    assert cause(exits).rank == 1


def test_a_rank_that_exited_with_code_0_is_the_cause_if_all_others_lost_a_peer():
    exits = [ended(0, 1, LOST_PEER), ended(1, 0), ended(2, 1, LOST_PEER)]
    assert cause(exits).rank == 1
    assert "left before the others, with exit code 0," in cause(exits).summary()


def test_a_rank_that_the_launcher_killed_is_never_the_cause():
    exits = [ended(0, KILLED, ended_by_launcher=True), ended(1, 3, "RunFailed: nan")]
    assert cause(exits).rank == 1


def test_the_report_shows_the_cause_with_its_last_twenty_lines_and_folds_the_others():
    output = "\n".join(f"line {number}" for number in range(30))
    exits = [ended(0, 1, LOST_PEER), ended(1, 1, output, step=1234), ended(2, 1, LOST_PEER)]
    lines = report(exits, cause(exits))
    assert lines[0] == "rank 1 ended with exit code 1 at step 1,234 (learning)"
    assert lines[1:-1] == [f"  line {number}" for number in range(10, 30)]
    assert lines[-1] == "rank(s) 0, 2 ended because of it"


def test_if_every_rank_blames_a_peer_the_report_points_to_the_debug_variable():
    waited = [
        ended(rank, 1, "RuntimeError: Timed out waiting 8000ms for send operation to complete") for rank in (0, 1)
    ]
    assert "TORCH_DISTRIBUTED_DEBUG=DETAIL" in report(waited, cause(waited))[-1]
    killed = [ended(0, 1, LOST_PEER), ended(1, KILLED)]
    assert "DETAIL" not in report(killed, cause(killed))[-1]


def test_a_crash_is_restarted_at_once_and_then_with_exponential_backoff():
    policy = RestartPolicy(4)
    decisions = [policy.decide([ended(0, KILLED, step=9)], []) for _ in range(5)]
    assert [decision.restart for decision in decisions] == [True] * 4 + [False]
    assert [decision.wait for decision in decisions[:4]] == [0.0, 1.0, 2.0, 4.0]
    assert decisions[-1].exit_code == 3
    assert decisions[-1].lines[-1] == "not restarted: 4 restart(s) in a row made no progress"


def test_progress_resets_the_count_of_restarts():
    policy = RestartPolicy(1)
    assert all(policy.decide([ended(0, KILLED, step=step)], []).restart for step in (5, 6, 7))
    assert not policy.decide([ended(0, KILLED, step=7)], []).restart


def test_the_same_exception_at_the_same_step_is_not_tried_a_third_time():
    policy = RestartPolicy(3)
    assert policy.decide([ended(0, 1, "ValueError: a", step=5)], []).restart
    decision = policy.decide([ended(0, 1, "ValueError: a", step=5)], [])
    assert (decision.restart, decision.exit_code) == (False, 3)
    assert decision.lines[-1] == "not restarted: it failed in the same way twice"


def test_the_same_exception_at_another_step_is_tried_again():
    policy = RestartPolicy(3)
    assert policy.decide([ended(0, 1, "ValueError: a", step=5)], []).restart
    assert policy.decide([ended(0, 1, "ValueError: a", step=4)], []).restart


@pytest.mark.parametrize("code", [2, 3, 4, 75, 130])
def test_a_deliberate_exit_keeps_its_code(code):
    decision = RestartPolicy(3).decide([ended(0, code), ended(1, code)], [])
    assert (decision.restart, decision.exit_code, decision.lines) == (False, code, [])


def test_a_deliberate_exit_that_only_follows_a_kill_is_restarted():
    timed_out = "lockstep: barrier 'save': not all ranks arrived within 600 s"
    assert RestartPolicy(3).decide([ended(0, 3, timed_out), ended(1, KILLED)], []).restart


def test_nothing_is_restarted_once_the_run_was_asked_to_stop():
    policy = RestartPolicy(3)
    assert policy.decide([ended(0, 75), ended(1, 75)], [signal.SIGTERM]).exit_code == 75
    # A rank that has no signal handlers yet is killed by the request itself.
    assert policy.decide([ended(0, -signal.SIGTERM), ended(1, 75)], [signal.SIGTERM]).exit_code == 75
    crashed = policy.decide([ended(0, 1, LOST_PEER), ended(1, KILLED)], [signal.SIGTERM])
    assert (crashed.restart, crashed.exit_code) == (False, 3)
    assert policy.decide([ended(0, KILLED, ended_by_launcher=True)], [signal.SIGTERM] * 2).exit_code == 143
    assert policy.decide([ended(0, KILLED, ended_by_launcher=True)], [signal.SIGINT]).exit_code == 130


def test_the_output_of_a_rank_is_its_traceback_or_else_the_end_of_its_log(tmp_path):
    error, log = tmp_path / "error", tmp_path / "log"
    log.write_text("first\nlast\n")
    assert last_output(error, log) == ("first\nlast", None)
    assert last_output(error, None) == ("", None)
    extra = {"py_callstack": "Traceback\nValueError: a\n", "timestamp": "7", "time": 7.25}
    error.write_text(json.dumps({"message": {"message": "ValueError: a", "extraInfo": extra}}))
    assert last_output(error, log) == ("Traceback\nValueError: a", 7.25)
    error.write_text("{ torn")
    assert last_output(error, log) == ("first\nlast", None)


def test_nccl_warnings_come_before_the_traceback_whose_last_line_stays_last(tmp_path):
    error = tmp_path / "error"
    nccl_log(error).write_text("".join(f"NCCL WARN {line}\n" for line in range(9)))
    frames = "\n".join(f"frame {line}" for line in range(30))
    extra = {"py_callstack": f"{frames}\nDistBackendError: b", "timestamp": "7"}
    error.write_text(json.dumps({"message": {"message": "b", "extraInfo": extra}}))
    output = last_output(error, None)[0].splitlines()
    assert output[:7] == [*(f"NCCL WARN {line}" for line in range(3, 9)), "frame 17"]
    assert output[-1] == "DistBackendError: b"
    assert len(output) == TAIL_LINES, "all of it is shown"
    error.unlink()
    assert last_output(error, None) == ("\n".join(output[:6]), None), "a rank that just died left nothing else"


MEMORY = "Traceback\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"


def halves_until_four(halvings):
    return f"--grad-accum {2**halvings}" if halvings <= 2 else None


def test_out_of_memory_halves_the_micro_batches_until_they_cannot_be_halved():
    policy = RestartPolicy(0, halves_until_four)
    exits = [ended(0, 1, LOST_PEER, at=2), ended(1, 1, MEMORY, at=1, step=5)]
    decision = policy.decide(exits, [])
    assert decision.restart and policy.halvings == 1
    assert decision.lines[0] == "  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    assert decision.lines[1].startswith("rank 1 ran out of memory at step 5 (learning); all ranks continue")
    assert policy.decide(exits, []).restart and policy.halvings == 2
    last = policy.decide(exits, [])
    assert (last.restart, last.exit_code) == (False, 3)
    assert last.lines[-1] == "not restarted: its batches cannot be split further; lower the batch size"


@pytest.mark.parametrize(
    "output", ["MemoryError", "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"]
)
def test_host_memory_counts_too(output):
    assert ended(0, 1, output).out_of_memory
    assert not ended(0, 1, "ValueError: no OutOfMemoryError here\nValueError").out_of_memory


def test_a_kill_by_the_kernel_for_memory_is_reported_as_one():
    killed = ended(1, KILLED, step=3, killed_for_memory=True)
    assert killed.summary() == "rank 1 was killed by the kernel's out-of-memory killer at step 3 (learning)"
    policy = RestartPolicy(3, halves_until_four)
    assert policy.decide([killed], []).restart and policy.halvings == 1
    # If nothing can be halved, it is a crash like any other.
    plain = RestartPolicy(3)
    assert plain.decide([killed], []).restart and plain.halvings == 0


def test_a_rank_still_running_after_the_others_timed_out_is_the_cause():
    waited = "RuntimeError: Application timeout caused pair closure"
    exits = [ended(0, 1, waited), ended(1, KILLED, ended_by_launcher=True, step=7), ended(2, 1, waited)]
    assert cause(exits).rank == 1
    assert cause(exits).summary().startswith("rank 1 never reached the collective that the others waited in, at step 7")


def test_machines_that_join_or_leave_do_not_count_as_restarts():
    policy = RestartPolicy(1)
    for _ in range(5):
        assert policy.decide([ended(0, 75)], [], regroups=True).restart
    assert policy.decide([ended(0, -signal.SIGUSR1), ended(1, 75)], [], regroups=True).restart
    # On one machine, 75 means that someone asked a rank itself to stop.
    assert policy.decide([ended(0, 75)], []).exit_code == 75
    # And a request to this machine's launcher is meant for this machine.
    assert policy.decide([ended(0, 75)], [signal.SIGTERM], regroups=True).exit_code == 75


def test_the_loss_of_a_machine_is_counted_and_reported_as_one():
    policy = RestartPolicy(1)
    exits = [ended(0, KILLED, ended_by_launcher=True, step=4)]
    decision = policy.decide(exits, [], regroups=True, missing=1)
    assert decision.lines == ["lost 1 machine(s); restarting all ranks from the newest checkpoint (1 of 1)"]
    assert not policy.decide(exits, [], regroups=True, missing=1).restart
    closed = [ended(0, 1, LOST_PEER, step=9)]
    assert policy.decide(closed, [], regroups=True).lines[0].startswith("step 9 (learning): lost ranks of another")


def test_a_rendezvous_server_that_never_answers_is_given_up():
    policy = RestartPolicy(2)
    assert [policy.out_of_touch(5, "a:1").restart for _ in range(3)] == [True, True, False]
    assert policy.out_of_touch(6, "a:1").restart


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("Traceback ...\n  File x\nValueError: two\nlines", "ValueError: two"),
        ("warning: deaf ears\nthe last line\n\n", "the last line"),
        ("host:1:2 [0] NCCL WARN Duplicate GPU detected\nRuntimeError: later", "NCCL WARN Duplicate GPU detected"),
        (
            "torch.OutOfMemoryError: CUDA out of memory.\nRuntimeError: later",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
        ("terminate called after throwing\n  what():  bad alloc", "bad alloc"),
        ("", ""),
    ],
)
def test_the_line_that_gives_the_reason_is_found(output, why):
    assert reason(output) == why
