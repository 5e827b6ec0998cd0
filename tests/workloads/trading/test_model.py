"""The networks: acting step by step equals the whole sequence; forecasts are about the next day."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.compute import random
from lockstep.distributed.gradients import FlatGradient, local_gradient
from lockstep.distributed.world import World
from lockstep.rl.problem import Discrete, EnvProblem
from lockstep.rl.stateful_policy import StatefulPolicy
from lockstep.workloads.trading import model
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.settings import CLSTMSettings, LSTMSettings
from lockstep.workloads.trading.workload import Trading

CPU = torch.device("cpu")


LSTM = LSTMSettings(hidden_size=16)
TWO = LSTMSettings(hidden_size=16, lstms="two")
CLSTM = CLSTMSettings(hidden_size=16, attention_window=4)
PREDICTING = replace(CLSTM, aux_coef=1.0)


def built(settings, observations=430, actions=11, seed=42):
    problem = EnvProblem(
        name="numbers", observation_shape=(observations,), actions=Discrete(actions), make_env=lambda index, seed: None
    )
    return settings.build(problem, Trading().config(seed=seed))


def make(settings):
    network = built(settings, observations=6, actions=3)
    generator = torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        # Larger weights than the initial ones, so that every path matters.
        nn.init.normal_(parameter, std=0.3, generator=generator)
    return network


@pytest.mark.parametrize("settings", [LSTM, TWO, CLSTM, PREDICTING])
def test_acting_step_by_step_equals_the_sequence(settings):
    network = make(settings)
    generator = torch.Generator().manual_seed(1)
    observation = torch.randn(12, 3, 6, generator=generator)
    keep = torch.ones(12, 3)
    keep[5, 1] = keep[6, 1] = keep[9, 2] = 0.0
    policy = StatefulPolicy(network, 3, CPU)
    with torch.no_grad():
        for _ in range(2):
            policy.act(torch.randn(3, 6, generator=generator))
        logits, values, *_ = network.sequence(observation, tuple(part.clone() for part in policy.memory), keep)
        for t in range(12):
            policy.forget(keep[t] == 0.0)
            now = policy.act(observation[t])
            torch.testing.assert_close(now[0], logits[t], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(now[1], values[t], rtol=1e-4, atol=1e-5)
            if t == 5:
                between = tuple(part.clone() for part in policy.memory)
        # The second half from what is remembered of the first is the second half of the whole.
        later = network.sequence(observation[6:], between, keep[6:])[0]
    torch.testing.assert_close(later, logits[6:], rtol=1e-4, atol=1e-5)


def test_attention_has_an_effect_and_ends_with_its_window():
    network = make(CLSTM)
    memory = network.first_memory(1, CPU)
    changed = list(memory)
    changed[0], changed[3] = torch.full((1,), 3.0), torch.ones_like(memory[3])
    observation = torch.zeros(6, 1, 6)
    one = network.sequence(observation, memory, torch.ones(6, 1))[0]
    other = network.sequence(observation, tuple(changed), torch.ones(6, 1))[0]
    assert not torch.allclose(one[0], other[0])


def test_clstm_has_about_as_many_weights_as_the_guides_network():
    network = built(CLSTMSettings())
    assert sum(parameter.numel() for parameter in network.parameters()) == pytest.approx(2.9e6, rel=0.05)


def test_the_seed_determines_the_initial_weights():
    one, two, other = (built(LSTMSettings(hidden_size=32), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.lstm.recurrent, two.lstm.recurrent)
    assert not torch.equal(one.lstm.recurrent, other.lstm.recurrent)
    # The policy begins almost uniform, the LSTM remembering.
    assert one.actor[-1].weight.abs().max() < 0.02
    assert one.lstm.inputs.bias.view(4, -1)[:, 0].tolist() == [0.0, 0.0, 1.0, 0.0]


def test_forecast_targets_are_read_from_the_next_observation():
    env = TradingEnv(MarketSettings(episode_length=20), torch.arange(3), 5, CPU)
    env.reset()
    before = env.market.spot.clone()
    observation = env.step(torch.zeros(3, dtype=torch.int64)).observation
    price, spread, volume = model.forecast_target(observation).unbind(-1)
    bars = env.market.bars
    torch.testing.assert_close(price, 100 * (env.market.spot / before).log().float(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(spread, 100 * (bars[:, 1, -1] / bars[:, 2, -1]).log(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(volume, 0.5 * ((bars[:, 4, -1] + 1) / (bars[:, 4] + 1).mean(1)).log())


class Watch(TorchDispatchMode):
    """Collects the operations that a captured graph may not contain: those that wait for the device."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(word in str(func) for word in ("_local_scalar_dense", "nonzero", "masked_select", "aten.equal")):
            self.waits.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("network", "changes"),
    [("lstm", {"lstms": "two", "aux_coef": 1.0}), ("clstm", {"attention_window": 4}), ("mlp", {})],
)
def test_acting_and_learning_never_sync_and_memory_is_updated_in_place(network, changes, monkeypatch):
    # Counters are only looked at on the host: on a GPU that would be a wait.
    monkeypatch.setattr(random, "_refuse_large", lambda counter: None)
    config = Trading().preset("debug", network=network).replace(**changes)
    learner = Trading().build(config, World().with_lanes(8, "fast"))
    learner.step()
    collector = learner._collector
    collector.env = TradingEnv(config.workload, torch.arange(16), 5, CPU, sparse=False)
    collector._observation.copy_(collector.env.reset())
    places = [part.data_ptr() for part in collector._policy.memory]
    loss, flat = learner._replica._module, FlatGradient(list(learner.model.parameters()))
    collector._time.zero_()
    # On a CPU the optimizer may look at the gradient's norm.
    monkeypatch.setattr(learner._optimizer, "_direct", False)
    with Watch() as watch, torch.no_grad():
        collector._recorded_step()
        collector._estimate()
    with watch:
        local_gradient(loss, flat, flat.vector, learner._batches[0], learner._precision)
        learner._descend_once()
    assert watch.waits == []
    assert [part.data_ptr() for part in collector._policy.memory] == places
