"""Which weights a run has, newest first, whatever else lies in its directory."""

import torch

from lockstep.distributed.world import World
from lockstep.storage.checkpoint import Snapshot, save, save_weights
from lockstep.storage.stored_models import stored_models


def found(run):
    return [(model.name, model.step) for model in stored_models(run)]


def test_models_are_listed_from_the_newest_on(tmp_path):
    assert found(tmp_path) == []
    model = {"weight": torch.tensor([1.0])}
    for step in (1, 20):
        save(tmp_path, Snapshot(model, {}, {}, {0: {}}), world=World(), step=step, workload="snake", extra={})
    save_weights(tmp_path / "best", model, config_text="", workload="snake", step=7, extra={})
    assert found(tmp_path) == [("step-000000000020", 20), ("best", 7), ("step-000000000001", 1)]
    save_weights(tmp_path / "final", model, config_text="", workload="snake", step=20, extra={})
    assert found(tmp_path)[0] == ("final", 20)


def test_damaged_and_foreign_folders_are_left_out(tmp_path):
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "manifest.json").write_text("{}")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "final").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "checkpoints" / "step-000000000003").mkdir(parents=True)
    assert found(tmp_path) == []
