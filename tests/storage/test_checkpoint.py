"""Checkpoints: what was saved is loaded, and anything that was changed is refused."""

import errno
import hashlib
import json
import os
import resource
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lockstep.distributed.lanes import Lanes
from lockstep.distributed.world import World
from lockstep.errors import NoValidCheckpoint, RunFailed, UserError
from lockstep.storage import checkpoint, manifest
from lockstep.storage.checkpoint import CheckpointFailed, Snapshot, inspect, load, newest_valid, save, verify_run
from lockstep.storage.tensor_file import encode

LANES = 4


def alone(lanes: int = LANES) -> World:
    return World().with_lanes(lanes, "fast")


def snapshot(lanes: range = range(LANES), weight: float = 1.0) -> Snapshot:
    model = {"layer.weight": torch.full((2, 3), weight), "layer.bias": torch.tensor([0.5, -0.5])}
    optimizer = {"layer.weight.exp_avg": torch.zeros(2, 3), "step": torch.tensor(7)}
    # A lane's tensors carry its number, so that a swapped lane shows.
    return Snapshot(
        model,
        optimizer,
        {"updates": 3, "best": float("-inf")},
        {lane: {"position": torch.full((2,), lane)} for lane in lanes},
    )


def stored(root: Path, step: int, weight: float = 1.0) -> Path:
    return save(root, snapshot(weight=weight), world=alone(), step=step, workload="snake", extra={"sync": "fast"})


def together(size: int, part: Callable[[SimpleNamespace], object]) -> list[object]:
    """Run one thread per rank, with a world that really exchanges values; returns what each returned or raised."""
    meeting, box, results = threading.Barrier(size, timeout=20), [None] * size, [None] * size

    def exchange(rank: int, value: object) -> list[object]:
        box[rank] = json.dumps(value)
        meeting.wait()
        everyone = [json.loads(text) for text in box]
        meeting.wait()
        return everyone

    def run(rank: int) -> None:
        world = SimpleNamespace(
            rank=rank,
            size=size,
            leads=rank == 0,
            lanes=Lanes.split(LANES, rank, size, "fast"),
            gather_json=lambda value: exchange(rank, value),
            agree=lambda flag: max(exchange(rank, flag)),
            barrier=lambda name: exchange(rank, name),
        )
        try:
            results[rank] = part(world)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def files_of(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


def reseal(path: Path, **changes: object) -> None:
    """Change the manifest and recompute its hash, as a forger would."""
    content = json.loads((path / "manifest.json").read_text())
    content.pop("sha256")
    (path / "manifest.json").write_bytes(manifest._seal({**content, **changes}))


def test_every_kind_of_tensor_comes_back_bit_for_bit(tmp_path):
    tied = torch.arange(6.0).reshape(2, 3)
    model = {
        "half": torch.tensor([1.0, -2.5], dtype=torch.bfloat16),
        "counter": torch.tensor(2**62 + 1),
        "mask": torch.tensor([True, False, True]),
        "nothing": torch.empty(0, 3),
        "turned": tied.t(),
        "tied": tied,
        "tied_again": tied,
        "slice": tied[1],
        "trained": torch.nn.Parameter(torch.tensor([float("nan"), -0.0, 1e-45])),
    }
    save(tmp_path, Snapshot(model, {}, {}), world=alone(1), step=0, workload="snake", extra={})
    back = load(tmp_path / "checkpoints" / "step-000000000000", [0])
    assert back.model.keys() == model.keys()
    for name, tensor in model.items():
        assert back.model[name].dtype == tensor.dtype
        assert back.model[name].shape == tensor.shape
        assert back.model[name].is_contiguous()
    assert checkpoint.weights_hash(back.model) == checkpoint.weights_hash(model)
    assert back.lanes == {0: {}}


def test_a_checkpoint_looks_on_disk_as_the_design_says(tmp_path):
    path = stored(tmp_path, 123456)
    assert path == tmp_path / "checkpoints" / "step-000000123456"
    names = [file.relative_to(path).as_posix() for file in files_of(path)]
    lanes = [f"lanes/lane-0{lane}.safetensors" for lane in range(4)]
    assert names == [*lanes, "manifest.json", "model.safetensors", "optimizer.safetensors", "state.json"]
    content = json.loads((path / "manifest.json").read_text())
    assert (content["format"], content["workload"], content["step"]) == (1, "snake", 123456)
    assert (content["lanes"], content["world_size"], content["torch"]) == (4, 1, str(torch.__version__))
    assert content["extra"] == {"sync": "fast"}
    body = (path / "model.safetensors").read_bytes()
    expected = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}
    assert content["files"]["model.safetensors"] == expected
    assert list((tmp_path / "checkpoints").iterdir()) == [path]


def test_state_and_lanes_come_back(tmp_path):
    back = load(stored(tmp_path, 5), [2, 3])
    assert back.state == {"updates": 3, "best": float("-inf")}
    assert {lane: tensors["position"].tolist() for lane, tensors in back.lanes.items()} == {2: [2, 2], 3: [3, 3]}
    assert int(back.optimizer["step"]) == 7


def test_the_wrapper_prefix_is_never_written_and_is_stripped_on_import(tmp_path):
    wrapped = Snapshot({"module.a": torch.ones(1)}, {}, {})
    path = save(tmp_path, wrapped, world=alone(1), step=1, workload="snake", extra={})
    assert b"module." not in (path / "model.safetensors").read_bytes()
    foreign = tmp_path / "foreign.safetensors"
    foreign.write_bytes(encode({"module.b": torch.ones(2)}))
    assert list(checkpoint.load_weights(foreign)[0]) == ["b"]


@pytest.mark.parametrize("size", [2, 3])
def test_any_number_of_ranks_writes_the_same_files(tmp_path, size):
    one = stored(tmp_path / "one", 8)

    def part(world):
        return save(
            tmp_path / "many", snapshot(world.lanes.mine), world=world, step=8, workload="snake", extra={"sync": "fast"}
        )

    (many,) = set(together(size, part))
    assert inspect(many) == []
    assert json.loads((many / "manifest.json").read_text())["world_size"] == size
    for file in files_of(one):
        if file.name != "manifest.json":
            assert file.read_bytes() == (many / file.relative_to(one)).read_bytes()


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path):
    older, newer = stored(tmp_path, 1), stored(tmp_path, 2, weight=2.0)
    os.truncate(newer / "model.safetensors", 10)
    reports = []
    assert newest_valid(tmp_path, reports.append) == older
    (report,) = reports
    size = json.loads((newer / "manifest.json").read_text())["files"]["model.safetensors"]["size"]
    assert "step-000000000002" in report
    assert f"model.safetensors: truncated, 10 of {size} bytes" in report
    assert verify_run(tmp_path)["checkpoints/step-000000000001"] == []
    assert len(verify_run(tmp_path)["checkpoints/step-000000000002"]) == 1


def test_if_no_checkpoint_verifies_the_run_refuses_and_lists_what_it_tried(tmp_path):
    for step in (1, 2):
        (stored(tmp_path, step) / "state.json").unlink()
    with pytest.raises(NoValidCheckpoint, match=r"step-000000000002 \(state.json: missing\), step-0+1 ") as failure:
        newest_valid(tmp_path, lambda _: None)
    assert failure.value.exit_code == 4


def test_if_nothing_was_saved_there_is_nothing_to_resume(tmp_path):
    assert newest_valid(tmp_path, pytest.fail) is None
    assert verify_run(tmp_path) == {}


def test_a_checkpoint_of_something_else_names_the_first_difference(tmp_path):
    path = stored(tmp_path, 1)
    assert load(path, [0], expect={"workload": "snake", "lanes": 4, "sync": "fast"}).lanes.keys() == {0}
    with pytest.raises(UserError, match="workload is 'snake' in the checkpoint and 'trading' in this run"):
        load(path, [0], expect={"workload": "trading", "lanes": 8})
    with pytest.raises(UserError, match="sync is 'fast' in the checkpoint and 'exact' in this run"):
        load(path, [0], expect={"sync": "exact"})
    with pytest.raises(UserError, match="lanes 0 to 3, not 4; set --lanes 4"):
        load(path, [4])
    reseal(path, format=2)
    with pytest.raises(UserError, match="format is 2, this version of Lockstep reads 1"):
        load(path, [0])
    with pytest.raises(UserError, match="no such checkpoint"):
        load(tmp_path / "nowhere", [0])


def test_a_checkpoint_that_verifies_is_kept_and_a_damaged_one_replaced(tmp_path):
    path = stored(tmp_path, 1, weight=1.0)
    assert stored(tmp_path, 1, weight=2.0) == path
    assert load(path, []).model["layer.weight"][0, 0] == 1.0
    (path / "state.json").write_text("{}")
    stored(tmp_path, 1, weight=2.0)
    assert load(path, []).model["layer.weight"][0, 0] == 2.0
    (aside,) = (entry for entry in path.parent.iterdir() if entry != path)
    assert aside.name.startswith(".tmp-step-000000000001-")


def test_a_file_that_outgrows_its_limit_leaves_the_run_as_it_was(tmp_path):
    older = stored(tmp_path, 1)
    big = Snapshot({"weight": torch.zeros(1 << 19)}, {}, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(CheckpointFailed, match=r"rank 0 failed at model.safetensors: File too large \(.* MB free"):
            save(tmp_path, big, world=alone(1), step=2, workload="snake", extra={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(older.parent.iterdir()) == [older]
    assert inspect(older) == []
    assert save(tmp_path, big, world=alone(1), step=2, workload="snake", extra={}).is_dir()


def test_without_disk_space_nothing_is_written(tmp_path, monkeypatch):
    older = stored(tmp_path, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100))
    with pytest.raises(CheckpointFailed, match=r"it needs 0.0 MB \(0.0 MB free\)"):
        stored(tmp_path, 2)
    assert list(older.parent.iterdir()) == [older]


def test_a_full_disk_on_one_rank_is_the_same_failure_on_all(tmp_path, monkeypatch):
    older = stored(tmp_path, 1)
    write = checkpoint.write_durably

    def full(path, data):
        if path.name == "lane-02.safetensors":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, data)

    monkeypatch.setattr(checkpoint, "write_durably", full)
    failures = together(
        2, lambda w: save(tmp_path, snapshot(w.lanes.mine), world=w, step=2, workload="snake", extra={})
    )
    assert all(isinstance(failure, CheckpointFailed) and isinstance(failure, RunFailed) for failure in failures)
    assert str(failures[0]) == str(failures[1])
    assert "rank 1 failed at lane-02.safetensors: No space left on device" in str(failures[0])
    assert list(older.parent.iterdir()) == [older]


def test_ranks_without_a_shared_directory_are_told_so(tmp_path):
    roots = {0: tmp_path / "here", 1: tmp_path / "there"}

    def part(world):
        # Rank 1 finds the same directories on its own disk.
        if world.leads is False:
            gather = world.gather_json
            world.gather_json = lambda value: _mirror(gather(value), roots[1])
        return save(roots[world.rank], snapshot(world.lanes.mine), world=world, step=2, workload="snake", extra={})

    def _mirror(answers, root):
        if isinstance(answers[0], list) and isinstance(answers[0][0], str):
            (root / "checkpoints" / answers[0][0] / "lanes").mkdir(parents=True)
        return answers

    failures = together(2, part)
    assert all("not seen by rank 0, the run directory must be shared" in str(failure) for failure in failures)


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.parametrize("stage", ["_open_workspace", "_write_part", "_complete", "_publish"])
@pytest.mark.parametrize("before", [True, False])
def test_a_writer_killed_at_any_stage_costs_no_earlier_checkpoint(tmp_path, monkeypatch, stage, before):
    older = stored(tmp_path, 1)
    work = getattr(checkpoint, stage)

    def dies(*arguments):
        if not before:
            work(*arguments)
        raise Killed

    monkeypatch.setattr(checkpoint, stage, dies)
    with pytest.raises(Killed):
        stored(tmp_path, 2, weight=2.0)
    monkeypatch.undo()
    reports = []
    found = newest_valid(tmp_path, reports.append)
    published = stage == "_publish" and not before
    left = [] if published or (stage == "_open_workspace" and before) else [".tmp-step-000000000002-"]
    assert found == (older.with_name("step-000000000002") if published else older)
    assert len(reports) == len(left) and all(name in reports[0] for name in left)
    newer = stored(tmp_path, 2, weight=2.0)
    assert inspect(newer) == []
    checkpoint.prune(tmp_path, keep=3, protect=set())
    assert sorted(older.parent.iterdir()) == [older, newer]
