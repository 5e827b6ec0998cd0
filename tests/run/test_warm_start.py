"""A warm start: what fits is taken over and what does not is named."""

import pytest
import torch
from safetensors.torch import save_file

from lockstep.compute.ops import lstm_layout
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.run.warm_start import Fitting, warm_start
from lockstep.storage.checkpoint import weights_hash
from lockstep.storage.weights import save_weights
from lockstep.workloads import registry

SNAKE = registry.load("snake")


def learner_of(workload, **changes):
    config = registry.load(workload).preset("debug").replace(device="cpu", **changes)
    return registry.load(workload).build(config, World().with_lanes(config.effective_lanes, "fast"))


def start(learner, path):
    return warm_start(learner, World(), SNAKE.preset("debug").replace(load_model=str(path)), SNAKE)


def test_the_parts_of_a_model_are_told_apart():
    stored = {"a": torch.zeros(2), "b": torch.zeros(3), "c": torch.zeros(2, dtype=torch.int64), "z": torch.zeros(1)}
    needed = {"a": torch.ones(2), "b": torch.ones(4), "c": torch.ones(2), "d": torch.ones(1)}
    fitting = Fitting.of(stored, needed)
    assert list(fitting.taken) == ["a"]
    assert fitting.lines("old") == [
        "load-model old: 1 of 4 tensors loaded",
        "load-model: did not fit, begin anew: b ((3,) there, (4,) here), c (torch.int64 there, torch.float32 here)",
        "load-model: not in it, begin anew: d",
        "load-model: in it without a place here: z",
    ]


def test_a_bigger_board_starts_with_the_convolutions_of_a_smaller_one(tmp_path):
    small, big = learner_of("snake", seed=7), learner_of("snake", grid_size=8)
    fresh = big.model.state_dict()["features.5.weight"].clone()
    torch.save(small.model.state_dict(), tmp_path / "small.pth")
    lines = start(big, tmp_path / "small.pth")
    assert lines[0].endswith("7 of 8 tensors loaded") and "features.5.weight ((256, 144) there, (256, 256)" in lines[1]
    now, then = big.model.state_dict(), small.model.state_dict()
    assert torch.equal(now["features.1.weight"], then["features.1.weight"])
    assert torch.equal(now["features.5.weight"], fresh)


def test_a_moving_average_that_the_model_lacks_starts_from_its_weights():
    plain, averaged = learner_of("cricket", seed=7), learner_of("cricket", ema_decay=0.9)
    averaged.begin_with(plain.model.state_dict())
    state = averaged.model.state_dict()
    averages = [name for name in state if name.startswith("average.")]
    assert averages
    for name in averages:
        assert torch.equal(state[name], plain.model.state_dict()[name.replace("average.", "network.", 1)])


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ({"features.1.weight": torch.zeros(1)}, r"none of its weights fit .* features.1.weight \(\(1,\) there"),
        ({"nothing.of.ours": torch.zeros(1)}, "none of its weights fit .*holds nothing.of.ours"),
        ({"actor.bias": torch.tensor([0.0, 1.0, float("nan"), 2.0])}, "tensor actor.bias holds numbers that are not"),
        ({"actor.bias": torch.full((4,), float("inf"))}, "tensor actor.bias holds numbers that are not finite"),
    ],
)
def test_weights_that_cannot_be_used_are_refused_and_change_nothing(tmp_path, weights, reason):
    learner = learner_of("snake")
    before = {name: value.clone() for name, value in learner.model.state_dict().items()}
    torch.save(weights, tmp_path / "model.pth")
    with pytest.raises(UserError, match=reason) as caught:
        start(learner, tmp_path / "model.pth")
    assert "\n" not in str(caught.value)
    assert all(torch.equal(value, before[name]) for name, value in learner.model.state_dict().items())


def test_a_stored_run_and_its_folders_are_read_like_a_file(tmp_path):
    old = learner_of("snake", seed=7)
    weights, text = dict(old.model.state_dict()), to_yaml(registry.load("snake").preset("debug"))
    (tmp_path / "run").mkdir()
    save_weights(tmp_path / "run" / "final", weights, config_text=text, workload="snake", step=1, extra={})
    for path in ("run", "run/final", "run/final/model.safetensors"):
        learner = learner_of("snake")
        assert start(learner, tmp_path / path)[0].endswith("8 of 8 tensors loaded")
        assert torch.equal(learner.model.actor.weight, old.model.actor.weight)


def test_an_exported_lstm_starts_as_it_was(tmp_path):
    old, new = learner_of("trading", seed=7), learner_of("trading")
    path = tmp_path / "policy.safetensors"
    save_file(lstm_layout.to_pytorch(old.model.state_dict(), old.model), path)
    config = registry.load("trading").preset("debug").replace(load_model=str(path))
    warm_start(new, World(), config, registry.load("trading"))
    assert weights_hash(new.model.state_dict()) == weights_hash(old.model.state_dict())
