"""Weights alone: best/ and final/, files of other programs, and the weights hash."""

import hashlib
import json
import os
import pickle
from pathlib import Path

import pytest
import torch

from lockstep.distributed.world import World
from lockstep.errors import NoValidCheckpoint, UserError
from lockstep.storage import disk, weights
from lockstep.storage.checkpoint import (
    Snapshot,
    inspect,
    load,
    load_weights,
    save,
    save_weights,
    verify_run,
    weights_hash,
)
from lockstep.storage.manifest import CheckpointFailed, FileRecord, _seal
from lockstep.storage.tensor_file import encode


def keep(directory: Path, value: float, step: int = 7) -> Path:
    model = {"weight": torch.tensor([value])}
    return save_weights(directory, model, config_text="seed: 1\n", workload="snake", step=step, extra={"score": 2.5})


def value_at(path: Path) -> float:
    return float(load_weights(path)[0]["weight"])


def test_weights_are_replaced_whole_and_verify(tmp_path):
    keep(tmp_path / "best", 1.0)
    keep(tmp_path / "best", 2.0)
    assert value_at(tmp_path / "best") == 2.0
    assert sorted(path.name for path in (tmp_path / "best").iterdir()) == [
        "config.yaml",
        "manifest.json",
        "model.safetensors",
    ]
    assert inspect(tmp_path / "best") == []
    assert verify_run(tmp_path) == {"best": []}
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert (tmp_path / "best" / "config.yaml").read_text() == "seed: 1\n"


def test_weights_are_replaced_where_names_cannot_be_swapped(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "_exchange", lambda first, second: False)
    keep(tmp_path / "best", 1.0)
    keep(tmp_path / "best", 2.0)
    assert value_at(tmp_path / "best") == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_failed_write_leaves_the_old_weights(tmp_path, monkeypatch):
    keep(tmp_path / "best", 1.0)

    def full(path, data):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(weights, "write_durably", full)
    with pytest.raises(CheckpointFailed, match=r"best: not written, model.safetensors: No space left on device"):
        keep(tmp_path / "best", 2.0)
    assert value_at(tmp_path / "best") == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_loading_a_run_prefers_final_over_best_over_the_newest_checkpoint(tmp_path):
    with pytest.raises(NoValidCheckpoint, match="has no weights yet"):
        load_weights(tmp_path)
    snapshot = Snapshot({"weight": torch.tensor([1.0])}, {}, {}, {0: {}})
    save(tmp_path, snapshot, world=World(), step=1, workload="snake", extra={})
    assert value_at(tmp_path) == 1.0
    keep(tmp_path / "best", 2.0)
    assert value_at(tmp_path) == 2.0
    keep(tmp_path / "final", 3.0)
    tensors, manifest = load_weights(tmp_path)
    assert tensors["weight"].tolist() == [3.0]
    assert manifest is not None
    assert (manifest.kind, manifest.workload, manifest.step, manifest.extra) == ("weights", "snake", 7, {"score": 2.5})
    assert value_at(tmp_path / "checkpoints" / "step-000000000001") == 1.0
    with pytest.raises(UserError, match="kind is 'weights' in the checkpoint and 'checkpoint' in this run"):
        load(tmp_path / "final", [])


def test_a_file_is_checked_against_the_manifest_beside_it(tmp_path):
    file = keep(tmp_path / "best", 1.0) / "model.safetensors"
    assert load_weights(file)[1] is not None
    body = bytearray(file.read_bytes())
    body[-1] ^= 1
    file.write_bytes(body)
    with pytest.raises(NoValidCheckpoint, match=r"model.safetensors: content changed"):
        load_weights(file)
    loose = tmp_path / "loose.safetensors"
    loose.write_bytes(encode({"weight": torch.tensor([4.0])}))
    assert load_weights(loose)[1] is None
    assert value_at(loose) == 4.0


def test_a_path_that_holds_no_weights_is_refused_in_one_line(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 64)
    for name, reason in [
        ("nowhere", "no such run"),
        ("notes.txt", "not a .safetensors file"),
        ("broken.safetensors", "not a safetensors file"),
    ]:
        with pytest.raises(UserError, match=reason) as refusal:
            load_weights(tmp_path / name)
        assert "\n" not in str(refusal.value)
    twice = tmp_path / "twice.safetensors"
    twice.write_bytes(encode({"a": torch.ones(1), "module.a": torch.ones(1)}))
    with pytest.raises(UserError, match=r"'module.a' exists twice"):
        load_weights(twice)


class Payload:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self):
        return os.system, (f"touch {self.canary}",)


def test_a_hostile_payload_never_runs(tmp_path):
    canary = tmp_path / "canary"
    hostile = pickle.dumps(Payload(canary))
    loose = tmp_path / "model.safetensors"
    loose.write_bytes(hostile)
    as_torch_saves = tmp_path / "model.pt"
    torch.save(Payload(canary), as_torch_saves)
    as_zip = tmp_path / "zipped.safetensors"
    as_zip.write_bytes(as_torch_saves.read_bytes())
    for path in (loose, as_torch_saves, as_zip):
        with pytest.raises(UserError):
            load_weights(path)
    # The forger knows how manifests are sealed, so that only the format itself stands in the way.
    best = keep(tmp_path / "best", 1.0)
    (best / "model.safetensors").write_bytes(hostile)
    content = json.loads((best / "manifest.json").read_text())
    content.pop("sha256")
    record = FileRecord.of(hostile)
    content["files"]["model.safetensors"] = {"sha256": record.sha256, "size": record.size}
    (best / "manifest.json").write_bytes(_seal(content))
    assert inspect(best) == ["model.safetensors: not a safetensors file (its header is cut off or too large)"]
    with pytest.raises(NoValidCheckpoint, match="not a safetensors file"):
        load_weights(best)
    assert not canary.exists()
    pickle.loads(hostile)
    assert canary.exists(), "the payload itself must work, or this test proves nothing"


def test_the_hash_is_the_one_worked_out_by_hand():
    by_hand = hashlib.sha256()
    by_hand.update(b'["a", "torch.bool", [2]]\n' + bytes([1, 0]))
    by_hand.update(b'["b", "torch.int64", []]\n' + (5).to_bytes(8, "little"))
    by_hand.update(b'["c", "torch.bfloat16", [0, 3]]\n')
    tensors = {"c": torch.empty(0, 3, dtype=torch.bfloat16), "b": torch.tensor(5), "a": torch.tensor([True, False])}
    assert weights_hash(tensors) == by_hand.hexdigest()


def test_the_hash_sees_names_types_shapes_and_bits_and_nothing_else():
    base = torch.zeros(2, 3)
    same = [torch.zeros(3, 2).t(), torch.nn.Parameter(torch.zeros(2, 3)), torch.zeros(4, 3)[1:3]]
    assert {weights_hash({"w": tensor}) for tensor in [base, *same]} == {weights_hash({"w": base})}
    other = [
        {"v": base},
        {"w": base.double()},
        {"w": base.int()},
        {"w": base.reshape(3, 2)},
        {"w": -base},
        {"w": base, "x": torch.empty(0)},
    ]
    assert len({weights_hash(tensors) for tensors in [{"w": base}, *other]}) == 7
