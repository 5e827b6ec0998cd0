"""Recurrent policies: LSTM features, then an actor and a critic head. T: time, B: sequences, E: environments."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from lockstep.compute.ops.lstm import LSTM
from lockstep.rl.networks import initialise
from lockstep.rl.stateful_policy import Memory


def head(sizes: tuple[int, ...], activation: type[nn.Module]) -> nn.Sequential:
    """Linear layers of these sizes with an activation between them; none after the last."""
    layers: list[nn.Module] = []
    for entry, size in pairwise(sizes):
        layers += [activation(), nn.Linear(entry, size)] if layers else [nn.Linear(entry, size)]
    return nn.Sequential(*layers)


class LSTMPolicy(nn.Module):
    """A `RecurrentPolicy` with one LSTM shared by actor and critic, or one for each."""

    def __init__(
        self,
        observation_size: int,
        action_count: int,
        hidden_size: int,
        *,
        separate: bool = False,
        head_sizes: tuple[int, ...] = (64, 64),
        forecasts: int = 0,
    ) -> None:
        """`separate`: the critic has its own LSTM. `forecasts`: K, the numbers predicted at each step; 0 = none."""
        super().__init__()
        self.lstm = LSTM(observation_size, hidden_size)
        self.critic_lstm = LSTM(observation_size, hidden_size) if separate else None
        self.actor = head((hidden_size, *head_sizes, action_count), nn.Tanh)
        self.critic = head((hidden_size, *head_sizes, 1), nn.Tanh)
        self.forecast = nn.Linear(hidden_size, forecasts) if forecasts else None

    def first_memory(self, count: int, device: torch.device) -> Memory:
        """Hidden and cell state of each LSTM, (E, hidden) zeros: two tensors, or four with a separate critic."""
        parts = 2 if self.critic_lstm is None else 4
        return tuple(torch.zeros(count, self.lstm.hidden_size, device=device) for _ in range(parts))

    def forward(self, observation: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Memory]:
        """Logits, value and the memory after one step."""
        memory_of_actor = self.lstm.step(observation, (memory[0], memory[1]))
        memory_of_critic: Memory = ()
        if self.critic_lstm is not None:
            memory_of_critic = self.critic_lstm.step(observation, (memory[2], memory[3]))
        logits, value = self._answer(memory_of_actor[0], (memory_of_critic or memory_of_actor)[0])
        return logits, value, (*memory_of_actor, *memory_of_critic)

    def sequence(self, observation: Tensor, memory: Memory, keep: Tensor) -> tuple[Tensor, ...]:
        """Logits (T, B, A) and values (T, B) of whole sequences; forecasts (T, B, K) too if the network makes any."""
        features, _ = self.lstm(observation, (memory[0], memory[1]), keep)
        of_critic = features
        if self.critic_lstm is not None:
            of_critic, _ = self.critic_lstm(observation, (memory[2], memory[3]), keep)
        answer = self._answer(features, of_critic)
        return answer if self.forecast is None else (*answer, self.forecast(features).float())

    def _answer(self, features: Tensor, of_critic: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(features).float(), self.critic(of_critic).squeeze(-1).float()


def start_recurrent(policy: nn.Module, actor: nn.Sequential, critic: nn.Sequential, generator: torch.Generator) -> None:
    """Initialise the weights: PPO's usual scheme, and the LSTMs' own."""
    last_of_actor, last_of_critic = actor[-1], critic[-1]
    assert isinstance(last_of_actor, nn.Linear) and isinstance(last_of_critic, nn.Linear)
    initialise(policy, last_of_actor, last_of_critic, generator)
    for module in policy.modules():
        if isinstance(module, LSTM):
            module.initialise(generator)
