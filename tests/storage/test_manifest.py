"""A stored checkpoint that was changed in any way is rejected, naming the file and the reason."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest
import torch

from lockstep.distributed.world import World
from lockstep.errors import NoValidCheckpoint
from lockstep.storage import manifest
from lockstep.storage.checkpoint import Snapshot, inspect, load, newest_valid, save

LANES = 4


def stored(root: Path, step: int, weight: float = 1.0) -> Path:
    lanes = {lane: {"position": torch.full((2,), lane)} for lane in range(LANES)}
    snapshot = Snapshot({"weight": torch.full((2, 3), weight)}, {"step": torch.tensor(7)}, {"updates": 3}, lanes)
    world = World().with_lanes(LANES, "fast")
    return save(root, snapshot, world=world, step=step, workload="snake", extra={"sync": "fast"})


def files_of(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


def reseal(path: Path, **changes: object) -> None:
    """Change the manifest and recompute its hash, as a forger would."""
    content = json.loads((path / "manifest.json").read_text())
    content.pop("sha256")
    (path / "manifest.json").write_bytes(manifest._seal({**content, **changes}))


def test_each_of_five_hundred_flipped_bits_is_detected(tmp_path):
    path = stored(tmp_path, 1)
    draw = random.Random(0)
    for _ in range(500):
        file = draw.choice(files_of(path))
        whole = file.read_bytes()
        position, bit = draw.randrange(len(whole)), 1 << draw.randrange(8)
        file.write_bytes(whole[:position] + bytes([whole[position] ^ bit]) + whole[position + 1 :])
        (problem,) = inspect(path)
        assert problem.startswith(f"{file.relative_to(path).as_posix()}: ")
        with pytest.raises(NoValidCheckpoint, match=file.name):
            load(path, range(LANES))
        file.write_bytes(whole)
    assert inspect(path) == []


def test_each_of_a_hundred_truncations_is_detected(tmp_path):
    path = stored(tmp_path, 1)
    draw = random.Random(1)
    for _ in range(100):
        file = draw.choice(files_of(path))
        whole = file.read_bytes()
        file.write_bytes(whole[: draw.randrange(len(whole))])
        (problem,) = inspect(path)
        assert problem.startswith(f"{file.relative_to(path).as_posix()}: ")
        file.write_bytes(whole)
    assert inspect(path) == []


def edit_step(path: Path) -> None:
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"step": 2', '"step": 1'))


def swap_manifest(path: Path) -> None:
    other = path.with_name("step-000000000001") / "manifest.json"
    shutil.copy(other, path / "manifest.json")


def nest_deeply(path: Path) -> None:
    (path / "manifest.json").write_text("[" * 100_000)


@pytest.mark.parametrize(
    ("damage", "verdict"),
    [
        (edit_step, "does not match its own sha256"),
        (lambda path: (path / "manifest.json").write_text("{}"), "does not match its own sha256"),
        (lambda path: (path / "manifest.json").open("a").write(" "), "does not match its own sha256"),
        (nest_deeply, "not a JSON object"),
        (lambda path: (path / "manifest.json").write_text("[]"), "not a JSON object"),
        (swap_manifest, "belongs to step 1"),
        (lambda path: (path / "manifest.json").unlink(), "manifest.json: missing"),
        (lambda path: reseal(path, step=1), "belongs to step 1"),
        (lambda path: reseal(path, files={}), "lists other files"),
        (lambda path: reseal(path, files={"../../x": {"sha256": "0" * 64, "size": 1}}), "lists other files"),
        (lambda path: reseal(path, lanes=10**15), "lists other files"),
        (lambda path: reseal(path, lanes="4"), "field 'lanes'"),
        (lambda path: reseal(path, kind="other"), "kind 'other'"),
        (lambda path: reseal(path, files={"model.safetensors": 3}), "not a sha256 and a size"),
        (lambda path: (path / "extra.bin").write_bytes(b"x"), "extra.bin: not in the manifest"),
        (lambda path: (path / "lanes" / "lane-02.safetensors").unlink(), "lanes/lane-02.safetensors: missing"),
    ],
)
def test_a_wrong_or_missing_manifest_is_rejected(tmp_path, damage, verdict):
    older, path = stored(tmp_path, 1, weight=3.0), stored(tmp_path, 2)
    damage(path)
    assert verdict in " ".join(inspect(path))
    assert newest_valid(tmp_path, lambda _: None) == older


def test_links_and_pipes_are_refused_without_waiting(tmp_path):
    path = stored(tmp_path, 1)
    outside = shutil.copy(path / "model.safetensors", tmp_path / "outside")
    (path / "model.safetensors").unlink()
    (path / "model.safetensors").symlink_to(outside)
    (path / "state.json").unlink()
    os.mkfifo(path / "state.json")
    problems = inspect(path)
    assert [problem.split(":")[0] for problem in problems] == ["model.safetensors", "state.json"]
