"""Run directories written by hand: every number in them is known."""

import json
import struct
from pathlib import Path

import pytest

from lockstep.storage.manifest import CONFIG, MODEL, FileRecord, Manifest, lane_file, step_name
from lockstep.storage.run_events import note


def tensors(number):
    """A file of one weight with this value."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + struct.pack("<f", number)


def store(folder, step, number, **manifest):
    """Write a checkpoint, or weights alone if `manifest` says kind="weights"."""
    content = {MODEL: tensors(number)}
    if manifest.get("kind") == "weights":
        content[CONFIG] = b"seed: 1\n"
    else:
        content |= {"optimizer.safetensors": tensors(0), "state.json": b"{}", lane_file(0): tensors(0)}
        manifest = {"kind": "checkpoint", "lanes": 1, "world_size": 1, **manifest}
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    records = {name: FileRecord.of(data) for name, data in content.items()}
    (folder / "manifest.json").write_bytes(
        Manifest(workload="snake", step=step, torch="2", files=records, **manifest).render()
    )


class Recorder:
    """Writes runs into a folder."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir

    def __call__(self, name, *, seed=1, returns=(1.0, 2.0, 3.0), weights=(1.0, 2.0), curve=None, ranks=1, **settings):
        """A run of 100 steps with a log point every ten, and a checkpoint at step 50 and 100 with these weights."""
        path = self.runs_dir / name
        path.mkdir(parents=True)
        lines = "".join(f"{key}: {value}\n" for key, value in ({"seed": seed, "run_name": name} | settings).items())
        (path / "config.yaml").write_text(f"# workload: snake\n{lines}")
        facts = {"preset": "debug", "changed": {"seed": seed} | settings, "ranks": ranks, "score_name": "return_mean"}
        status = {"workload": "snake", "state": "finished", "step": 100, "best_score": 3.0, "updated": 2000.0}
        (path / "status.json").write_text(json.dumps(status | {"seconds": 90.0, "facts": facts}))
        system = {"versions": {"torch": "2.13.0"}, "world": {"size": ranks}, "devices": {"gpus": []}}
        command = ["/x/lockstep", "train", "snake", "--preset", "debug"]
        (path / "system.json").write_text(json.dumps(system | {"command": command}))
        values = curve or [float(step) for step in range(10, 101, 10)]
        points = [
            {"step": step, "time": 1000.0 + step, "rollout/return_mean": value, "time/global_fps": 10.0}
            | {"time/split_acting": 0.25, "time/split_learning": 0.5, "weights_sha256": f"{int(value * 16):016x}"}
            for step, value in zip(range(10, 101, 10), values, strict=True)
        ]
        (path / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
        summary = {"episodes": len(returns), "seed": 7, "return_mean": sum(returns) / len(returns)}
        (path / "evaluation.json").write_text(json.dumps(summary | {"episode_returns": list(returns)}))
        for step, number in zip((50, 100), weights, strict=True):
            store(path / "checkpoints" / step_name(step), step, number, world_size=ranks)
        note(path, "started", f"on {ranks} ranks", 0)
        return path


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Write a run into runs/ of a new working directory."""
    monkeypatch.chdir(tmp_path)
    return Recorder(tmp_path / "runs")
