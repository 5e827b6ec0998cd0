"""The weights of TD-MPC2: a latent world model, a policy prior, and the target network of the values.

T: time, B: samples, A: action size, Z: latent features, K: bins, N: value functions.
"""

from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from lockstep.algorithms.tdmpc2.model.discrete import Bins
from lockstep.algorithms.tdmpc2.model.images import ImageEncoder
from lockstep.algorithms.tdmpc2.model.layers import Ensemble, StackedLinear, mlp
from lockstep.compute.random import derive_seed
from lockstep.rl.target_networks import target_of

_DEVIATION = 0.02  # of the initial weights, as in the official program
_HALF_LOG_TAU = 0.9189385332046727  # half the logarithm of 2 pi


@dataclass(frozen=True)
class Spaces:
    """Observation and action sizes of the tasks: one task, or several that share a model."""

    observation: int
    """Observation size; that of the largest task."""
    actions: tuple[int, ...]
    """Action size of each task; smaller ones are padded to the largest."""
    episode_lengths: tuple[int, ...]
    """Agent steps of an episode, for each task."""
    terminates: bool = False
    """Whether an episode can end by the rules."""
    names: tuple[str, ...] = ()
    """Names of the tasks."""
    image: tuple[int, int, int] | None = None
    """Shape of an observation of bytes; None = it is a vector of float32."""
    frames: int = 1
    """Frames of an image, stacked along its channels, the oldest first."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of an observation."""
        return self.image or (self.observation,)

    @property
    def action(self) -> int:
        """A: the largest action size."""
        return max(self.actions)

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.actions)

    def masks(self) -> Tensor:
        """(tasks, A) 1 for the components of an action that a task has, else 0."""
        return (torch.arange(self.action) < torch.tensor(self.actions).unsqueeze(1)).float()


@dataclass(frozen=True)
class Sizes:
    """How large the networks are."""

    encoder: int
    encoder_layers: int
    hidden: int
    latent: int
    values: int
    """N."""
    task: int = 0
    """Size of a task's embedding; 0 if there is one task."""
    simplex: int = 8
    """Features of a SimNorm group."""
    log_std: tuple[float, float] = (-10.0, 2.0)
    """Bounds of the policy prior's log standard deviation."""
    bins: Bins = field(default_factory=Bins)
    dropout: float = 0.01
    """Dropout probability after the first layer of the value functions."""
    channels: int = 32
    """Channels of the encoder's convolutions, if observations are images."""


class WorldModel(nn.Module):
    """Encoder, dynamics, reward, value functions, and termination if episodes can end by the rules.

    Inputs are (..., features); `task` (..., task) are the tasks' embeddings, or None if there is one task.
    """

    def __init__(self, sizes: Sizes, spaces: Spaces) -> None:
        super().__init__()
        state = sizes.latent + sizes.task
        hidden = [sizes.hidden] * 2
        self.encoder = _encoder(sizes, spaces)
        self.dynamics = mlp(state + spaces.action, hidden, sizes.latent, sizes.simplex)
        self.reward = mlp(state + spaces.action, hidden, sizes.bins.count)
        self.termination = mlp(state, hidden, 1) if spaces.terminates else None
        self.values = Ensemble(sizes.values, state + spaces.action, hidden, sizes.bins.count)
        self.tasks = nn.Embedding(spaces.tasks, sizes.task) if sizes.task else None

    def embed(self, task: Tensor | None) -> Tensor | None:
        """Embeddings of task numbers: (...) -> (..., task)."""
        return None if self.tasks is None or task is None else self.tasks(task)

    def encode(self, observation: Tensor, task: Tensor | None) -> Tensor:
        """The latent state of an observation: (..., Z)."""
        # Images come with one task, which needs no embedding.
        return self.encoder(observation if task is None else joined(observation, task))

    def next(self, latent: Tensor, action: Tensor, task: Tensor | None) -> Tensor:
        """The predicted next latent state: (..., Z)."""
        return self.dynamics(joined(latent, task, action))

    def reward_logits(self, latent: Tensor, action: Tensor, task: Tensor | None) -> Tensor:
        """Logits of the reward of an action: (..., K)."""
        return self.reward(joined(latent, task, action))

    def termination_logit(self, latent: Tensor, task: Tensor | None) -> Tensor:
        """Logit that the episode ends on reaching this state: (...)."""
        assert self.termination is not None
        return self.termination(joined(latent, task)).squeeze(-1)

    @torch.no_grad()
    def limit_embeddings(self) -> None:
        """Scale task embeddings down to a norm of at most 1."""
        if self.tasks is not None:
            weight = self.tasks.weight
            # 1e-7 keeps the division finite for an embedding of zeros.
            weight.mul_((1.0 / (weight.norm(dim=1, keepdim=True) + 1e-7)).clamp(max=1.0))


def _encoder(sizes: Sizes, spaces: Spaces) -> nn.Sequential:
    if spaces.image is not None:
        return ImageEncoder(spaces.image[0], sizes.channels, sizes.latent, sizes.simplex)
    # At least one hidden layer, as in the official program.
    before = [sizes.encoder] * max(sizes.encoder_layers - 1, 1)
    return mlp(spaces.observation + sizes.task, before, sizes.latent, sizes.simplex)


def joined(*parts: Tensor | None) -> Tensor:
    """Concatenate the parts that are not None, with leading axes broadcast: (..., sum of features)."""
    present = [part for part in parts if part is not None]
    # The usual case, without views to expand.
    if all(part.shape[:-1] == present[0].shape[:-1] for part in present):
        return torch.cat(present, -1)
    shape = torch.broadcast_shapes(*(part.shape[:-1] for part in present))
    return torch.cat([part.expand(*shape, -1) for part in present], -1)


@dataclass
class Choice:
    """Actions sampled from the policy prior."""

    action: Tensor
    """(..., A)"""
    entropy: Tensor
    """(...) minus the log-density of the action."""
    scaled_entropy: Tensor
    """(...) the same before squashing, times the action size; the loss rewards it."""


class Policy(nn.Module):
    """The policy prior: a normal distribution over actions, squashed to -1..1 by tanh."""

    def __init__(self, sizes: Sizes, spaces: Spaces) -> None:
        super().__init__()
        self.layers = mlp(sizes.latent + sizes.task, [sizes.hidden] * 2, 2 * spaces.action)
        self._log_std = sizes.log_std

    def distribution(self, latent: Tensor, task: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before squashing: (..., A) each, zero where the mask is."""
        mean, spread = self.layers(joined(latent, task)).float().chunk(2, -1)
        low, high = self._log_std
        # Squashed into the bounds rather than clamped, so that it has a gradient everywhere.
        log_std = low + 0.5 * (high - low) * (torch.tanh(spread) + 1.0)
        return (mean, log_std) if mask is None else (mean * mask, log_std * mask)

    def act(self, latent: Tensor, task: Tensor | None, mask: Tensor | None, noise: Tensor) -> Tensor:
        """Sample actions with standard normal noise: (..., A)."""
        mean, log_std = self.distribution(latent, task, mask)
        return torch.tanh(mean + _masked(noise, mask) * log_std.exp())

    def choose(self, latent: Tensor, task: Tensor | None, mask: Tensor | None, noise: Tensor) -> Choice:
        """The same, with the entropies that the loss needs."""
        mean, log_std = self.distribution(latent, task, mask)
        noise = _masked(noise, mask)
        action = torch.tanh(mean + noise * log_std.exp())
        density = (-0.5 * noise.square() - log_std - _HALF_LOG_TAU).sum(-1)
        # The change of density by tanh; 1e-6 keeps the logarithm finite where an action has saturated.
        squashing = torch.log(torch.relu(1.0 - action.square()) + 1e-6).sum(-1)
        # Only components that the task has count; the others have no noise and no spread.
        size: Tensor | int = noise.shape[-1] if mask is None else mask.sum(-1)
        return Choice(action, squashing - density, -density * size)


def _masked(values: Tensor, mask: Tensor | None) -> Tensor:
    return values if mask is None else values * mask


class TDMPC2Model(nn.Module):
    """All weights of a run: the trained networks, the target network of the values, and the value scale."""

    value_scale: Tensor
    masks: Tensor | None

    def __init__(self, sizes: Sizes, spaces: Spaces, seed: int) -> None:
        super().__init__()
        self.sizes, self.spaces = sizes, spaces
        self.world = WorldModel(sizes, spaces)
        self.policy = Policy(sizes, spaces)
        _initialise(self, derive_seed(seed, "initial-weights"))
        # After initialisation: target and values start out equal.
        self.target = cast(Ensemble, target_of(self.world.values))
        # A buffer: part of a checkpoint, but not trained.
        self.register_buffer("value_scale", torch.ones(()))
        # Not saved: it follows from the tasks.
        self.register_buffer("masks", spaces.masks() if sizes.task else None, persistent=False)

    @property
    def bins(self) -> Bins:
        """The bins in which rewards and values are predicted."""
        return self.sizes.bins

    def mask_of(self, task: Tensor | None) -> Tensor | None:
        """1 for the components of an action that a task has, else 0: (..., A)."""
        return None if self.masks is None or task is None else self.masks[task]

    def trained_parameters(self) -> int:
        """Number of trained parameters."""
        return sum(weight.numel() for weight in self.parameters() if weight.requires_grad)

    def forward(self, observation: Tensor, task: Tensor | None = None) -> tuple[Tensor]:
        """The policy prior's mean action, without planning: (B, A)."""
        embedded, mask = self.world.embed(task), self.mask_of(task)
        mean, _ = self.policy.distribution(self.world.encode(observation, embedded), embedded, mask)
        return (torch.tanh(mean),)


def _initialise(model: TDMPC2Model, seed: int) -> None:
    """Truncated normal weights and zero biases; the last layers of rewards and values start at zero."""
    # One generator and a fixed order of modules: the same weights on every rank, whatever was drawn before.
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Linear | StackedLinear):
            nn.init.trunc_normal_(module.weight, std=_DEVIATION, generator=generator)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.uniform_(module.weight, -_DEVIATION, _DEVIATION, generator=generator)
        elif isinstance(module, nn.Conv2d):
            # torch's own initialisation, which the official program keeps, but from our generator.
            bound = module.weight[0].numel() ** -0.5
            nn.init.uniform_(module.weight, -bound, bound, generator=generator)
            assert module.bias is not None
            nn.init.uniform_(module.bias, -bound, bound, generator=generator)
    # Rewards and values are then predicted as zero everywhere at first, if the bins are symmetric around zero.
    for output in (model.world.reward[-1], model.world.values[-1]):
        assert isinstance(output, nn.Linear | StackedLinear)
        nn.init.zeros_(output.weight)
