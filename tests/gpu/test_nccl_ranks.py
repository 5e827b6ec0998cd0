"""Every workload over real NCCL: one hash on any number of ranks, also across a resume, and after every fault."""

import pytest

from lockstep.workloads import registry

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]


@pytest.mark.parametrize("workload", registry.names())
def test_exact_has_one_hash_on_1_2_and_4_ranks_and_across_a_resume(train, lockstep, nccl_ranks, tmp_path, workload):
    sizes = [size for size in (2, 4) if size <= nccl_ranks]
    (_, alone), *others = [train(workload, f"on-{size}", size) for size in (1, *sizes)]
    assert {found for _, found in others} == {alone}
    train(workload, "moved", 2, "--max-updates", "3")
    code, output = lockstep("resume", tmp_path / "moved", "--ranks", "1", "--max-updates", "6")
    assert code == 0, output
    assert "resumed from" in output
    assert train(workload, "moved", 2)[1] == alone, "at its end already: the weights are compared"


FAULTS = {
    "kill": ("kill@rank=1,at=3", "rank 1 was killed by SIGKILL"),
    "exception": ("raise@rank=1,at=3", "rank 1 ended with exit code 1"),
    "leave": ("leave@rank=1,at=3", "rank 1 left before the others, with exit code 0,"),
    "stop": ("stop@rank=0,at=3", "rank 0 no longer answered"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_over_nccl_is_named_and_the_run_ends_in_the_undisturbed_bits(train, fault):
    planted, told = FAULTS[fault]
    _, undisturbed = train("snake", "undisturbed", 2)
    output, found = train("snake", "run", 2, "--timeout", "20", "--checkpoint-every", "256", faults=planted)
    assert told in output
    assert found == undisturbed


def test_out_of_memory_on_one_rank_halves_the_micro_batches_of_all(train):
    output, _ = train("snake", "run", 2, "--checkpoint-every", "256", faults="memory@rank=1,at=3")
    assert "rank 1 ran out of memory" in output
    assert "--grad-accum 2" in output


def test_a_request_to_stop_saves_once_and_the_same_command_goes_on(train):
    _, undisturbed = train("snake", "undisturbed", 2)
    output, _ = train("snake", "run", 2, faults="terminate@rank=1,at=3", code=75)
    assert "stopped on request at step" in output
    assert train("snake", "run", 2)[1] == undisturbed


def test_fast_with_recorded_graphs_keeps_the_replicas_equal(lockstep, tmp_path):
    place = ["--runs-dir", tmp_path, "--run-name", "run", "--device", "cuda"]
    sizes = ["--max-updates", "8", "--check-every", "1", "--eval-every", "0"]
    code, output = lockstep("train", "snake", "--preset", "small", "--ranks", "2", *place, *sizes)
    assert code == 0, output
