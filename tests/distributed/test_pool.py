import os
import re
import signal
import sys
import time

import psutil
import pytest
import torch

from lockstep.distributed.pool import RankError, RankPool, address


@pytest.fixture(scope="module")
def pair():
    with RankPool(2) as pool:
        yield pool


def who(world, greeting, loud=False):
    return [greeting.upper() if loud else greeting, world.rank, world.size]


def process_ids(world):
    return os.getpid()


def raise_on_the_last(world):
    if world.rank == world.size - 1:
        raise KeyError("nothing here")


def raise_before_an_exchange(world):
    if world.rank == 1:
        raise ValueError("rank 1 does not take part")
    world.sum(torch.ones(1))


def sleep_on_the_last(world, seconds):
    time.sleep(seconds if world.rank == world.size - 1 else 0)


def die(world):
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def die_with_output(world):
    if world.rank == 1:
        print("the disk of this rank has gone", file=sys.stderr, flush=True)
        os._exit(1)


def die_while_the_other_waits(world):
    if world.rank == 1:
        print("RuntimeError: the cause is here", file=sys.stderr, flush=True)
        time.sleep(0.2)
        os._exit(1)
    world.sum(torch.ones(1))


def print_something(world):
    print("this must not reach the pipe")
    return world.rank


def test_results_come_back_in_rank_order(pair):
    assert pair.run(who, "hello") == [["hello", 0, 2], ["hello", 1, 2]]
    assert pair.run(who, "hello", loud=True, ranks=1) == [["HELLO", 0, 1]]


def test_a_function_of_the_package_is_named_by_its_module(pair):
    assert pair.run("lockstep.distributed.pool_rank:in_step") == [None, None]


def test_prints_of_a_function_do_not_disturb_the_replies(pair):
    assert pair.run(print_something) == [0, 1]


def test_a_function_inside_another_is_refused():
    with pytest.raises(ValueError, match="must be defined at the top"):
        address(lambda world: None)


def test_an_exception_comes_back_with_its_type_and_traceback_and_the_ranks_stay(pair):
    before = pair.run(process_ids)
    with pytest.raises(RankError) as caught:
        pair.run(raise_on_the_last)
    assert (caught.value.rank, caught.value.kind) == (1, "KeyError")
    assert "raise_on_the_last" in caught.value.trace
    assert str(caught.value) == "rank 1: KeyError: 'nothing here'"
    assert pair.run(process_ids) == before


def test_ranks_out_of_step_are_restarted(pair):
    before = pair.run(process_ids)
    with pytest.raises(RankError, match="rank 1: ValueError: rank 1 does not take part"):
        pair.run(raise_before_an_exchange)
    assert not set(pair.run(process_ids)) & set(before)


def test_a_rank_that_dies_is_named_and_the_next_run_works(pair):
    with pytest.raises(RankError) as caught:
        pair.run(die)
    assert re.fullmatch(r"rank 1 was killed by SIGKILL at \d\d:\d\d:\d\d", str(caught.value))
    assert pair.run(who, "again") == [["again", 0, 2], ["again", 1, 2]]


def test_the_output_of_a_dead_rank_is_the_reason(pair):
    with pytest.raises(
        RankError, match=r"(?m)^rank 1 ended with exit code 1 at [\d:]+: the disk of this rank has gone$"
    ) as e:
        pair.run(die_with_output)
    assert e.value.details[-1] == "  the disk of this rank has gone"


def test_the_rank_that_died_is_named_and_not_the_one_that_lost_its_peer(pair):
    with pytest.raises(
        RankError, match=r"(?m)^rank 1 ended with exit code 1 at [\d:]+: RuntimeError: the cause is here$"
    ):
        pair.run(die_while_the_other_waits)


def test_ranks_that_cannot_start_say_why(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(
        RankError, match=r"(?m)^rank [01] ended with exit code 1 at [\d:]+: ModuleNotFoundError: .*torch"
    ) as e:
        RankPool(2).run(who, "nobody")
    assert "Traceback" in "\n".join(e.value.details)


def test_lockstep_errors_of_a_rank_show_no_traceback():
    assert list(RankError(2, "RunFailed", "replicas diverged", "Traceback ...").details) == []
    assert list(RankError(2, "KeyError", "'x'", "Traceback ...").details) == ["  Traceback ..."]


def test_an_error_of_many_lines_is_reduced_to_the_one_with_the_reason():
    lines = ["NCCL error in: x.cpp:1, unhandled cuda error", "Last error:", "Cuda failure 2 'out of memory'"]
    message = "\n".join(lines)
    assert str(RankError(3, "DistBackendError", message, "")) == "rank 3: Cuda failure 2 'out of memory'"


def test_ranks_listen_on_loopback_only(pair):
    addresses = {ip for found in pair.run(listening_addresses) for ip in found}
    assert addresses <= {"127.0.0.1", "::1"}


def listening_addresses(world):
    connections = psutil.Process().net_connections()
    return [c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN]


def test_a_timeout_names_the_rank_and_leaves_no_process(pair):
    children = [psutil.Process(pid) for pid in pair.run(process_ids)]
    with pytest.raises(TimeoutError, match=r"no answer from rank\(s\) 1 within 0.5 s"):
        pair.run(sleep_on_the_last, 60, timeout=0.5)
    assert not psutil.wait_procs(children, timeout=5)[1]
