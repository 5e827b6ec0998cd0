"""TORCH_DISTRIBUTED_DEBUG=DETAIL: with DDP torch crashes, so a run in fast does without it."""

import os
import subprocess
import sys

import pytest
import torch.distributed as dist

from lockstep.distributed import debug_level


@pytest.fixture
def level():
    before = dist.get_debug_level()
    yield dist.set_debug_level
    dist.set_debug_level(before)


def test_detail_is_lowered_to_info_and_said(level):
    level(dist.DebugLevel.DETAIL)
    (line,) = debug_level.lower()
    assert dist.get_debug_level() == dist.DebugLevel.INFO
    assert "INFO instead of DETAIL" in line
    assert debug_level.lower() == []


@pytest.mark.slow
@pytest.mark.parametrize(("sync", "said"), [("fast", True), ("exact", False)])
def test_two_ranks_train_although_detail_is_asked_for(sync, said, tmp_path):
    words = ["train", "snake", "--preset", "debug", "--ranks", "2", "--sync", sync, "--max-updates", "1"]
    environment = os.environ | {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    command = [sys.executable, "-m", "lockstep", *words, "--max-restarts", "0"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert ("INFO instead of DETAIL" in done.stdout) == said
