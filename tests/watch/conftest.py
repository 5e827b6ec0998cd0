"""Runs on disk that no training has to write."""

import json

import pytest

CONFIG = "# workload: snake\nsync: exact\nseed: 42\nlearning_rate: 0.0003\ntotal_timesteps: 1000\nrun_name: {name}\n"


@pytest.fixture
def write_run(tmp_path):
    """`write_run(name, points, **settings)` makes a run directory of log points, finished and on two ranks."""

    def write(name, points=(), ranks=2, state="finished", best=None, score="return_mean", **settings):
        path = tmp_path / name
        path.mkdir(parents=True)
        lines = CONFIG.format(name=path.name).splitlines()
        lines = [line for line in lines if line.split(":")[0] not in settings]
        lines += [f"{key}: {value}" for key, value in settings.items()]
        (path / "config.yaml").write_text("\n".join(lines) + "\n")
        facts = {"total_steps": 1000, "score_name": score, "lower_is_better": score == "log_loss"}
        status = {"workload": "snake", "state": state, "step": 0, "best_score": best, "updated": 1e9, "facts": facts}
        (path / "status.json").write_text(json.dumps(status))
        (path / "system.json").write_text(json.dumps({"world": {"size": ranks, "device": "cpu"}}))
        (path / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
        return path

    return write
