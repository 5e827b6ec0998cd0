"""What a run settles before it computes."""

import json
import os
from pathlib import Path

import pytest
import torch

from lockstep import failpoints
from lockstep.cli.main import main
from lockstep.config.run_settings import RunSettings
from lockstep.distributed.world import World
from lockstep.run import arithmetic
from lockstep.storage.checkpoint_retention import verify_run


@pytest.mark.parametrize(
    ("arm", "precision", "enabled"), [(True, "auto", False), (True, "bf16", True), (False, "auto", True)]
)
def test_small_products_go_past_onednn_on_arm(monkeypatch, arm, precision, enabled):
    monkeypatch.setattr(arithmetic, "is_arm", lambda: arm)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)
    arithmetic.fix(RunSettings(threads=1, precision=precision), World().with_lanes(8, "fast"))
    assert torch.backends.mkldnn.enabled == enabled


@pytest.mark.parametrize(
    ("sync", "tf32", "products"),
    [("fast", True, "high"), ("fast", False, "highest"), ("exact", True, "highest"), ("exact", False, "highest")],
)
def test_only_fast_rounds_products_to_tf32_and_not_under_proof(monkeypatch, sync, tf32, products):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", not tf32)
    before = torch.get_float32_matmul_precision()
    arithmetic.fix(RunSettings(threads=1), World().with_lanes(8, sync), tf32=tf32)
    found = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(before)
    assert found == (products, tf32)


def test_log_points_are_on_disk_before_the_checkpoint_that_is_past_them(tmp_path, monkeypatch):
    events = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(Path(f"/proc/self/fd/{fd}").readlink().name), fsync(fd)))
    monkeypatch.setattr(Path, "rename", lambda path, to: (events.append(Path(to).name), rename(path, to))[1])
    sizes = "--n-envs 8 --n-steps 8 --batch-size 64 --total-timesteps 128 --checkpoint-every 64 --eval-every 0"
    place = f"--runs-dir {tmp_path} --run-name run --ranks 1 --device cpu"
    assert main(f"train snake --preset debug {sizes} {place}".split()) == 0
    for name in ("step-000000000064", "step-000000000128"):
        before = events[: events.index(name)]
        # The last file that was flushed before a checkpoint got its name is the log.
        assert before[-1] == "metrics.jsonl"
        assert json.loads((tmp_path / "run" / "metrics.jsonl").read_bytes().splitlines()[0])["step"] == 64


SIZES = "--n-envs 8 --n-steps 8 --batch-size 64 --total-timesteps 192 --checkpoint-every 64 --eval-every 64"


@pytest.mark.parametrize("first", [5, 8, 20, 40])
def test_a_disk_that_refuses_from_any_write_on_costs_one_line_and_nothing_that_stood(
    tmp_path, monkeypatch, capfd, first
):
    words = f"train snake --preset debug {SIZES} --runs-dir {tmp_path} --run-name run --ranks 1 --device cpu".split()
    with monkeypatch.context() as patch:
        failpoints._visits.clear()
        patch.setattr(failpoints, "_faults", failpoints.parse(f"readonly@place=disk,at={first}.."))
        assert main(words) in (2, 3)
    told = capfd.readouterr().err
    assert "Traceback" not in told
    assert told.splitlines()[-1].startswith("lockstep: ") and "Read-only file system" in told.splitlines()[-1]
    assert main(words) == 0
    assert not any(verify_run(tmp_path / "run").values())
    logged = (tmp_path / "run/metrics.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["step"] for line in logged] == [64, 128, 192]
