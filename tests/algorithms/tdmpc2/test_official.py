"""Weights of the official program: both layouts, and those of others."""

import pytest
import torch

from lockstep.algorithms.tdmpc2.model.networks import Sizes, Spaces, TDMPC2Model
from lockstep.algorithms.tdmpc2.model.official import converted, is_official
from lockstep.errors import UserError

NETWORKS = {
    "world.encoder": "_encoder.state",
    "world.dynamics": "_dynamics",
    "world.reward": "_reward",
    "policy.layers": "_pi",
}
ORDER = ("weight", "bias", "norm.weight", "norm.bias")


def model(tasks=1):
    sizes = Sizes(16, 2, 24, 16, 3, task=4 if tasks > 1 else 0)
    return TDMPC2Model(sizes, Spaces(5, (2,) * tasks, (500,) * tasks), seed=1)


def official_state(model, old):
    """The model's weights as the official program names them, in its current layout or the one before 2025."""
    state = {"log_std_min": torch.tensor(-10), "log_std_dif": torch.tensor(12), "_action_masks": torch.ones(1, 2)}
    for name, value in model.state_dict().items():
        room = next((room for room in NETWORKS if name.startswith(room)), None)
        if room:
            state[name.replace(room, NETWORKS[room]).replace(".norm.", ".ln.")] = value
        elif name == "world.tasks.weight":
            state["_task_emb.weight"] = value
        elif name != "value_scale":
            which, layer, kind = name.removeprefix("world.").split(".", 2)
            if old:
                room = {"values": "_Qs.params", "target": "_target_Qs.params"}[which]
                state[f"{room}.{4 * int(layer) + ORDER.index(kind)}"] = value
            else:
                kind = kind.replace("norm.", "ln.")
                for room in {"values": ("_Qs.params", "_detach_Qs_params"), "target": ("_target_Qs_params",)}[which]:
                    state[f"{room}.{layer}.{kind}"] = value
    return state


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("tasks", [1, 3])
def test_both_layouts_give_the_models_own_names(old, tasks):
    source = model(tasks)
    state = official_state(source, old)
    assert is_official(state)
    found = converted(state)
    # Its value scale is not stored.
    expected = {name: value for name, value in source.state_dict().items() if name != "value_scale"}
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_other_weights_are_told_apart():
    assert not is_official({"weight": torch.zeros(2)})
    assert not is_official(model().state_dict())


def test_another_model_is_refused_by_the_name_of_its_layer():
    state = {**official_state(model(), old=False), "_decoder.2.weight": torch.zeros(1)}
    with pytest.raises(UserError, match=r"_decoder\.2\.weight") as caught:
        converted(state)
    assert "\n" not in str(caught.value)
