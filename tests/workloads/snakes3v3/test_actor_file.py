"""Actors of the competition's own program as weights of our network."""

import pytest
import torch
from torch import nn

from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.run.warm_start import warm_start
from lockstep.workloads.snakes3v3.workload import Snakes3v3

SNAKES = Snakes3v3()


def actor(seen=26, hidden=256):
    """The layers of its actor: no activation after the first one."""
    torch.manual_seed(3)
    first, second, last = nn.Linear(seen, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 4)
    network = nn.Sequential(first, second, nn.ReLU(), last, nn.Softmax(dim=-1))
    layers = {"prev_dense.0": first, "post_dense.0": second, "post_dense.2": last}
    return network, {
        f"{name}.{kind}": getattr(layer, kind) for name, layer in layers.items() for kind in ("weight", "bias")
    }


def config_of(**changes):
    return SNAKES.preset("debug").replace(observation="jidi26", hidden_size=256, device="cpu", **changes)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("algo", ["ddpg", "maddpg"])
def test_it_is_the_same_function_in_any_number_of_our_layers(tmp_path, layers, algo):
    network, weights = actor()
    torch.save(weights, tmp_path / "actor_2000.pth")
    config = config_of(hidden_layers=layers, algo=algo, load_model=str(tmp_path / "actor_2000.pth"))
    learner = SNAKES.build(config, World().with_lanes(config.effective_lanes, "fast"))
    warm_start(learner, World(), config, SNAKES)
    seen = torch.randint(0, 20, (7, 3, 26), generator=torch.Generator().manual_seed(0)).float()
    with torch.no_grad():
        ours = learner.model(seen)[0].exp()
        torch.testing.assert_close(ours, network(seen), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(learner.model.target_actor(seen), learner.model.actor(seen))


@pytest.mark.parametrize(
    ("stored", "changes", "message"),
    [
        (actor(30)[1], {}, "sees 30 numbers, not jidi26; add --observation guide30"),
        (actor(31)[1], {}, "sees 31 numbers, not jidi26; known sizes: 26, 30, 35"),
        (actor()[1], {"hidden_size": 32}, "an actor with 256 hidden units; add --hidden-size 256"),
        (actor()[1], {"algo": "bicnet"}, "use --algo ddpg"),
        (actor()[1] | {"comm_net.weight": torch.zeros(1)}, {}, "a BiCNet actor"),
        (dict(list(actor()[1].items())[:-1]), {}, "without post_dense.2.bias"),
        (actor()[1] | {"post_dense.0.weight": torch.zeros(256, 2)}, {}, "layers do not follow each other"),
        (actor()[1] | {"prev_dense.0.weight": torch.tensor(0.0)}, {}, "sees 0 numbers"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line_with_the_flag(tmp_path, stored, changes, message):
    torch.save(stored, tmp_path / "actor_2000.pth")
    with pytest.raises(UserError, match=message) as caught:
        SNAKES.read_foreign(config_of().replace(**changes), tmp_path / "actor_2000.pth")
    assert "\n" not in str(caught.value)
