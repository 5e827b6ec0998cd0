"""Trading's networks: one LSTM, or the guide's cascade of LSTMs with attention. T: time, B: sequences, E: accounts."""

import torch
from torch import Tensor, nn

from lockstep.compute.ops.attention import AttentionMask, WindowedAttention, slide
from lockstep.compute.ops.layer_norm import LayerNorm
from lockstep.compute.ops.lstm import LSTM
from lockstep.compute.random import derive_seed
from lockstep.rl.problem import Discrete, EnvProblem
from lockstep.rl.recurrent_policy import LSTMPolicy, head, start_recurrent
from lockstep.rl.stateful_policy import Memory

FORECASTS = ("price", "volatility", "volume")
"""What a network can learn to predict about the next day, as an auxiliary task."""
BLOCKS = 3  # As in the guide; also one for each of FORECASTS.


class Block(nn.Module):
    """An LSTM, attention over its last outputs, and layer normalisation of the sum of both."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.lstm = LSTM(size, size)
        self.attention = WindowedAttention(size, heads)
        self.norm = LayerNorm(size)

    def step(self, inputs: Tensor, memory: Memory, mask: AttentionMask) -> tuple[Tensor, Memory]:
        """Features (B, H) of one step and the memory after it: output, cells, and the outputs in the window."""
        # The attention works on sequences (T, B, H): here T = 1.
        hidden, cells, earlier = memory
        hidden, cells = self.lstm.step(inputs, (hidden, cells))
        found = self.attention(hidden.unsqueeze(0), earlier, mask).squeeze(0)
        return self.norm(hidden + found), (hidden, cells, slide(earlier, hidden.unsqueeze(0)))

    def forward(self, inputs: Tensor, memory: Memory, keep: Tensor, mask: AttentionMask) -> Tensor:
        """Features (T, B, H) of whole sequences; keep (T, B): 0.0 where an episode begins, else 1.0."""
        hidden, cells, earlier = memory
        outputs, _ = self.lstm(inputs, (hidden, cells), keep)
        return self.norm(outputs + self.attention(outputs, earlier, mask))


class CLSTMPolicy(nn.Module):
    """The guide's `RecurrentPolicy`: three blocks, a perceptron, then an actor and a critic.

    Attention sees a bounded number of past steps of the episode, the same while acting and while learning. Unlike the
    guide's network it has no dropout, with which PPO would compare probabilities of two different networks.
    """

    def __init__(
        self, observation_size: int, action_count: int, size: int, window: int, heads: int, forecasts: int = 0
    ) -> None:
        super().__init__()
        self._size, self._window = size, window
        self.encoder = nn.Linear(observation_size, size)
        self.blocks = nn.ModuleList(Block(size, heads) for _ in range(BLOCKS))
        self.merge = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU())
        self.actor = head((size, size, size // 2, action_count), nn.ReLU)
        self.critic = head((size, size, size // 2, 1), nn.ReLU)
        self.forecasts = nn.ModuleList(nn.Linear(size, 1) for _ in range(forecasts))

    def first_memory(self, count: int, device: torch.device) -> Memory:
        """Zeros: the number of steps in the window, then each block's output, cells and outputs in the window."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(count, *shape, device=device)

        # One flat tuple of tensors with E as their first axis, which is what lanes store and checkpoints hold.
        size, before = self._size, self._window - 1
        blocks = [part for _ in self.blocks for part in (zeros(size), zeros(size), zeros(before, size))]
        return zeros(), *blocks

    def forward(self, observation: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Memory]:
        """Logits, value and the memory after one step."""
        age, *blocks = memory
        # Ones: the caller clears the memory where an episode begins.
        mask = AttentionMask(age, torch.ones_like(age).unsqueeze(0), self._window)
        features, after = self.encoder(observation), [mask.age]
        for number, block in enumerate(self._blocks()):
            features, remembered = block.step(features, tuple(blocks[3 * number : 3 * number + 3]), mask)
            after += remembered
        return *self._answer(features), tuple(after)

    def sequence(self, observation: Tensor, memory: Memory, keep: Tensor) -> tuple[Tensor, ...]:
        """Logits and values of whole sequences, and a forecast from each block if the network makes forecasts."""
        age, *blocks = memory
        mask = AttentionMask(age, keep, self._window)
        features, outputs = self.encoder(observation), []
        for number, block in enumerate(self._blocks()):
            features = block(features, tuple(blocks[3 * number : 3 * number + 3]), keep, mask)
            outputs.append(features)
        answer = self._answer(features)
        if not self.forecasts:
            return answer
        # As in the guide: block 1 predicts the price, block 2 the volatility, block 3 the volume.
        predicted = [predict(output) for predict, output in zip(self.forecasts, outputs, strict=True)]
        return *answer, torch.cat(predicted, dim=-1).float()

    def _blocks(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]

    def _answer(self, features: Tensor) -> tuple[Tensor, Tensor]:
        merged = self.merge(features)
        # float32 also under autocast: probabilities and the value loss are computed from these.
        return self.actor(merged).float(), self.critic(merged).squeeze(-1).float()


def lstm(problem: EnvProblem, size: int, *, separate: bool, forecasts: bool, seed: int) -> LSTMPolicy:
    """One LSTM, or one each for actor and critic, with initial weights that are the same on every rank."""
    observations, actions = _sizes(problem)
    policy = LSTMPolicy(observations, actions, size, separate=separate, forecasts=len(FORECASTS) * forecasts)
    start_recurrent(policy, policy.actor, policy.critic, _generator(seed))
    return policy


def clstm(problem: EnvProblem, size: int, *, window: int, heads: int, forecasts: bool, seed: int) -> CLSTMPolicy:
    """The guide's cascade with initial weights that are the same on every rank."""
    policy = CLSTMPolicy(*_sizes(problem), size, window, heads, forecasts=len(FORECASTS) * forecasts)
    start_recurrent(policy, policy.actor, policy.critic, _generator(seed))
    return policy


def _sizes(problem: EnvProblem) -> tuple[int, int]:
    """The size of an observation, and the number of actions."""
    (observations,) = problem.observation_shape
    assert isinstance(problem.actions, Discrete)
    return observations, problem.actions.count


def _generator(seed: int) -> torch.Generator:
    # On the CPU, so that the weights do not depend on the device.
    return torch.Generator().manual_seed(derive_seed(seed, "initial-weights"))


def forecast_target(observation: Tensor) -> Tensor:
    """The targets of FORECASTS made the day before, (..., 3): log return and range in percent, and volume."""
    # The first part of an observation is the price history: 20 bars of open, high, low, close and volume.
    bars = observation[..., :100].unflatten(-1, (20, 5))
    day, before = bars[..., -1, :], bars[..., -2, :]
    # Prices are observed as 10 x log(price / last close): the close before it is minus the day's return.
    return torch.stack((-10.0 * before[..., 3], 10.0 * (day[..., 1] - day[..., 2]), day[..., 4]), dim=-1)
