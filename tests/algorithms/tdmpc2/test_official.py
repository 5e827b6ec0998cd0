"""Checkpoints of the official program: both layouts, and files that are not checkpoints."""

import pytest
import torch

from lockstep.algorithms.tdmpc2.model.networks import Sizes, Spaces, TDMPC2Model
from lockstep.algorithms.tdmpc2.model.official import read_official
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
def test_both_layouts_give_the_models_own_names(tmp_path, old, tasks):
    source = model(tasks)
    torch.save({"model": official_state(source, old)}, tmp_path / "agent.pt")
    found = read_official(tmp_path / "agent.pt")
    expected = {name: value for name, value in source.state_dict().items() if name != "value_scale"}
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_bare_state_dict_is_read_too(tmp_path):
    torch.save(official_state(model(), old=False), tmp_path / "agent.pt")
    assert "policy.layers.0.weight" in read_official(tmp_path / "agent.pt")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"model": {"weight": torch.zeros(2)}}, "no weights of a tdmpc2 world model"),
        ([1, 2], "no weights of a tdmpc2 world model"),
        ({"model": {**official_state(model(), old=False), "_encoder.rgb.2.weight": torch.zeros(1)}}, "_encoder.rgb.2"),
    ],
)
def test_other_content_is_refused_in_one_line(tmp_path, content, reason):
    torch.save(content, tmp_path / "agent.pt")
    with pytest.raises(UserError, match=reason) as caught:
        read_official(tmp_path / "agent.pt")
    assert "\n" not in str(caught.value)


def test_broken_and_missing_files_are_refused_in_one_line(tmp_path):
    torch.save({"model": official_state(model(), old=False)}, tmp_path / "agent.pt")
    whole = (tmp_path / "agent.pt").read_bytes()
    (tmp_path / "agent.pt").write_bytes(whole[: len(whole) // 2])
    for name in ("agent.pt", "absent.pt"):
        with pytest.raises(UserError, match=f"checkpoint .*{name}: ") as caught:
            read_official(tmp_path / name)
        assert "\n" not in str(caught.value)
