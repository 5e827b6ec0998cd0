"""What tests on a GPU share: ranks over NCCL, each with a GPU of its own or sharing one where the library allows it."""

import os
import re
import subprocess
import sys

import pytest
import torch

from lockstep.distributed import nccl
from lockstep.storage.checkpoint import weights_hash
from lockstep.storage.weights import load_weights


@pytest.fixture(scope="session")
def nccl_ranks():
    """How many NCCL ranks can run here; skipped where there is no GPU, or one that they cannot share."""
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    if torch.cuda.device_count() >= 2:
        return torch.cuda.device_count()
    if os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") != "1" or nccl.loaded_version() < (2, 30):
        pytest.skip("one GPU: ranks can share it with NCCL 2.30 or later and NCCL_MULTI_RANK_GPU_ENABLE=1")
    return 4


@pytest.fixture
def lockstep(nccl_ranks):
    """Run a command to its end: (exit code, what it printed)."""

    def run(*words, faults=""):
        environment = {**os.environ, "LOCKSTEP_FAULTS": faults, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "lockstep", *map(str, words)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    return run


@pytest.fixture
def train(lockstep, tmp_path):
    """A short run in exact mode, to its end: (what it printed, the hash of its weights)."""

    def run(workload, name, ranks, *more, faults="", code=0):
        sizes = ["--sync", "exact", "--max-updates", "6", "--eval-every", "0", "--device", "cuda"]
        words = ["train", workload, "--preset", "debug", "--runs-dir", tmp_path, "--run-name", name, *sizes]
        found, output = lockstep(*words, "--ranks", ranks, *more, faults=faults)
        assert found == code, output
        if ranks > 1:
            assert re.search(r"^tensors +NCCL ", output, re.MULTILINE), output
        return output, hash_of(tmp_path / name) if code == 0 else None

    return run


def hash_of(run):
    return weights_hash(load_weights(run / "final")[0])
