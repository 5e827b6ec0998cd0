import os
import subprocess
import sys

import pytest

from lockstep.cli.main import main
from lockstep.errors import UserError
from lockstep.launch import rank_process, resources
from lockstep.launch.heartbeat import NO_READING, Heartbeat


@pytest.fixture
def gpus(monkeypatch):
    return lambda count: monkeypatch.setattr(resources, "visible_gpus", lambda: count)


def test_the_default_is_one_rank_per_gpu_or_one(gpus):
    gpus(4)
    assert resources.decide_ranks(None, None) == 4
    gpus(0)
    assert resources.decide_ranks(None, None) == 1


def test_the_requested_number_of_ranks_is_used_if_possible(gpus):
    gpus(4)
    assert resources.decide_ranks(2, None) == 2
    assert resources.decide_ranks(None, 6) == 6


def test_by_default_gpus_without_a_lane_stay_idle(gpus, capsys):
    gpus(4)
    assert main(["plan", "control", "task=walker-walk"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "1 of 4 GPUs used: the run has only so many lanes; "
        "to use all GPUs, start the run with --lanes 4 and a multiple of 4 environments"
    )
    assert "lanes 1" in lines[3]
    assert main(["plan", "control", "task=walker-walk", "--gpus", "4"]) == 2, "as it was asked for, or not at all"
    assert "a multiple of 4 environments" in capsys.readouterr().err
    assert main(["plan", "control", "task=walker-walk", "--lanes", "4", "--num-envs", "4"]) == 0, "the advice is good"
    assert "GPUs used" not in capsys.readouterr().out
    assert main(["plan", "control", "task=walker-walk", "--scaling", "weak"]) == 0, "an environment for each rank"
    assert "rank 3: lane 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("visible", "gpus_requested", "ranks_requested", "message"),
    [
        (0, 4, None, "--gpus 4: this machine has no GPU; use --ranks 4"),
        (2, 4, None, "--gpus 4: 2 GPU(s) are visible"),
        (2, 0, None, "--gpus 0: at least 1"),
        (2, None, 0, "--ranks 0: at least 1"),
        (2, None, -3, "--ranks -3: at least 1"),
        (2, 2, 2, "--gpus 2 and --ranks 2: give one of them"),
    ],
)
def test_an_impossible_request_is_refused_in_one_line(gpus, visible, gpus_requested, ranks_requested, message):
    gpus(visible)
    with pytest.raises(UserError) as caught:
        resources.decide_ranks(gpus_requested, ranks_requested)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_cores_are_split_evenly_unless_the_run_or_the_user_says_otherwise(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [resources.threads_per_rank(ranks) for ranks in (1, 3, 16)] == [8, 2, 1]
    assert resources.threads_per_rank(4, requested=1) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert resources.threads_per_rank(4, requested=1) == 5


def test_launching_needs_no_torch_to_be_imported():
    program = "import sys, lockstep.launch.launcher; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_traceback_goes_to_the_file_that_torchrun_reads_and_to_stderr(tmp_path):
    program = "from lockstep.launch.rank_process import enter_rank; enter_rank(); raise ValueError('bad lane')"
    environment = {
        **os.environ,
        rank_process.ERROR_FILE_VARIABLE: str(tmp_path / "error"),
        "RANK": "0",
        "WORLD_SIZE": "1",
    }
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ValueError: bad lane" in done.stderr
    assert '"message": "ValueError: bad lane"' in (tmp_path / "error").read_text()


def test_a_rank_whose_launcher_has_already_died_exits():
    program = "from lockstep.launch.rank_process import die_with_parent; die_with_parent(1)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 3


def test_the_launcher_reads_what_a_rank_reports(tmp_path, monkeypatch):
    launcher = Heartbeat.create(tmp_path / "heartbeat")
    assert launcher.read() == NO_READING
    assert launcher.read().where() == ""
    monkeypatch.setenv("LOCKSTEP_HEARTBEAT", str(tmp_path / "heartbeat"))
    rank = Heartbeat.of_this_rank()
    rank.tell(12_345, "learning")
    rank.beat()
    assert launcher.read().where() == "step 12,345 (learning)"
    assert launcher.read().beats == 1


def test_without_a_launcher_the_heartbeat_has_no_file(monkeypatch):
    monkeypatch.delenv("LOCKSTEP_HEARTBEAT", raising=False)
    Heartbeat.of_this_rank().tell(1, "x" * 100)


@pytest.mark.parametrize(("before", "after"), [({}, "2000"), ({"MIMALLOC_PURGE_DELAY": "7"}, "7")])
def test_memory_is_kept_unless_the_user_says_otherwise(monkeypatch, before, after):
    monkeypatch.setattr(os, "environ", before)
    resources.keep_memory()
    assert before == {"MIMALLOC_PURGE_DELAY": after}


def test_the_descriptor_limit_is_raised_to_the_maximum_and_too_low_a_maximum_is_refused():
    code = (
        "import resource; from lockstep.launch import resources; resources.allow_descriptors(4); "
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0]); resources.allow_descriptors(5)"
    )
    argv = ["bash", "-c", 'ulimit -Sn 50; ulimit -Hn 64; exec "$@"', "-", sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.stdout == "64\n", done.stderr
    assert (
        "ulimit -n 64: 5 ranks on this machine: 68 open files are needed for each; allow more with `ulimit -n 1024`"
        in (done.stderr.splitlines()[-1])
    )
