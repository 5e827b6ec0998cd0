"""A network put together from what is observed: MLPs for vectors, convolutions for images, an LSTM if asked for.

T: time, B: batch, F: features, A: actions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lockstep.compute.ops.lstm import LSTM
from lockstep.compute.random import derive_seed
from lockstep.errors import UserError
from lockstep.rl.networks import hidden_layers, initialise, last_of, output_count, perceptron
from lockstep.rl.normalisers import ObservationNormaliser, parts_of
from lockstep.rl.problem import Continuous, EnvProblem, Part
from lockstep.rl.stateful_policy import Memory

FORBIDDEN = -1e9
"""The logit of a forbidden action: its probability rounds to 0, and unlike an infinity it leaves gradients finite."""
_SMALLEST_LARGE = 36
"""The shortest side of an image for which the large strides leave something over."""


@dataclass(frozen=True)
class Sizes:
    """How large the parts of the network are."""

    width: int
    layers: int
    activation: str
    cnn_features: int
    lstm: int
    initial_log_std: float


class Encoder(nn.Module):
    """Observations (B, ...) to features (B, F): images through convolutions, vectors through an MLP or as they are.

    A trunk is shared by policy and value. It pays where features are expensive; on vectors alone two separate MLPs
    learn better, so there the vectors themselves are the features.
    """

    def __init__(self, problem: EnvProblem, sizes: Sizes, normaliser: ObservationNormaliser | None) -> None:
        super().__init__()
        self._parts = parts_of(problem)
        # Bytes are scaled wherever they come from; in a vector of several parts an image is a row of float32.
        self._always_scaled = bool(problem.parts)
        self._is_plain = [part.kind for part in self._parts] == ["vector"]
        self.normaliser = normaliser
        vectors = sum(part.size for part in self._parts if part.kind == "vector")
        images = [part for part in self._parts if part.kind == "image"]
        if not vectors and not images:
            raise UserError(f"network auto: {problem.name} shows nothing but a mask; add something to observe")
        self.has_trunk = bool(images or sizes.lstm)
        self.images = nn.ModuleList(convolutions(part, sizes.cnn_features) for part in images)
        self.trunk: nn.Module | None = None
        if vectors and self.has_trunk:
            self.trunk = nn.Sequential(*hidden_layers(vectors, sizes.width, sizes.layers, sizes.activation))
        self.size = len(images) * sizes.cnn_features + (sizes.width if self.trunk is not None else vectors)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor | None]:
        """Features (B, F), and the mask of allowed actions (B, A) if the observations have one."""
        if self._is_plain:
            # The usual case. For a few environments, taking apart and joining takes as long as a layer of the network.
            return self._vector_features(observation.flatten(1)), None
        pieces = observation.flatten(1).split([part.size for part in self._parts], dim=1)
        of_kind: dict[str, list[Tensor]] = {"vector": [], "image": [], "mask": []}
        for part, piece in zip(self._parts, pieces, strict=True):
            of_kind[part.kind].append(piece.unflatten(1, part.shape) if part.kind == "image" else piece)
        features = [network(self._scaled(image)) for network, image in zip(self.images, of_kind["image"], strict=True)]
        if of_kind["vector"]:
            features.insert(0, self._vector_features(torch.cat(of_kind["vector"], dim=1)))
        mask = torch.cat(of_kind["mask"], dim=1) if of_kind["mask"] else None
        return torch.cat(features, dim=1), mask

    def _vector_features(self, vectors: Tensor) -> Tensor:
        vectors = vectors.float() if self.normaliser is None else self.normaliser(vectors)
        return vectors if self.trunk is None else self.trunk(vectors)

    def _scaled(self, image: Tensor) -> Tensor:
        if self._always_scaled or not image.is_floating_point():
            return image.float() * (1.0 / 255.0)
        return image


def convolutions(part: Part, features: int) -> nn.Sequential:
    """Three convolutions and a linear layer: (B, C, H, W) -> (B, features)."""
    channels, *sides = part.shape
    if min(sides) >= _SMALLEST_LARGE:
        # The usual network for Atari (Mnih et al., 2015).
        plan = [(32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)]
    else:
        # Small images are grids, in which each cell counts: no stride at first.
        plan = [(32, 3, 1, 1), (64, 3, 2 if min(sides) >= 8 else 1, 1), (64, 3, 2 if min(sides) >= 16 else 1, 1)]
    layers: list[nn.Module] = []
    for count, kernel, stride, padding in plan:
        layers += [nn.Conv2d(channels, count, kernel, stride, padding), nn.ReLU()]
        channels, sides = count, [(side + 2 * padding - kernel) // stride + 1 for side in sides]
    size = channels * sides[0] * sides[1]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(size, features), nn.ReLU())


class AutoActorCritic(nn.Module):
    """observation (B, ...) -> (outputs (B, A) or (B, 2A), value (B,)). On vectors alone it is an `MLPActorCritic`."""

    def __init__(self, problem: EnvProblem, sizes: Sizes, normaliser: ObservationNormaliser | None, seed: int) -> None:
        super().__init__()
        _check_mask(problem)
        self.encoder = Encoder(problem, sizes, normaliser)
        features, layers = self.encoder.size, 0 if self.encoder.has_trunk else sizes.layers
        self.lstm = LSTM(features, sizes.lstm) if sizes.lstm else None
        entry, outputs = sizes.lstm or features, output_count(problem.actions)
        self.actor = perceptron(entry, sizes.width, layers, sizes.activation, outputs)
        self.critic = perceptron(entry, sizes.width, layers, sizes.activation, 1)
        self.log_std: nn.Parameter | None = None
        if isinstance(problem.actions, Continuous):
            self.log_std = nn.Parameter(torch.full((outputs,), sizes.initial_log_std))
        generator = torch.Generator().manual_seed(derive_seed(seed, "network"))
        initialise(self, last_of(self.actor), last_of(self.critic), generator)
        if self.lstm is not None:
            self.lstm.initialise(generator)

    @property
    def normaliser(self) -> ObservationNormaliser | None:
        """The normaliser of its observations, if it has one."""
        return self.encoder.normaliser

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and value, in fp32."""
        return self.answer(*self.encoder(observation))

    def answer(self, features: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Outputs and value for features (..., F)."""
        outputs, value = self.actor(features).float(), self.critic(features).squeeze(-1).float()
        if mask is not None:
            # Not torch.where, which would copy the number from the host: a recorded graph must not.
            outputs = outputs.masked_fill(mask < 0.5, FORBIDDEN)
        if self.log_std is not None:
            outputs = torch.cat((outputs, self.log_std.expand_as(outputs)), dim=-1)
        return outputs, value


class RecurrentAutoActorCritic(AutoActorCritic):
    """The same with an LSTM between features and heads: a `RecurrentPolicy`."""

    def first_memory(self, count: int, device: torch.device) -> Memory:
        """Hidden and cell state, (E, hidden) zeros."""
        assert self.lstm is not None
        return tuple(torch.zeros(count, self.lstm.hidden_size, device=device) for _ in range(2))

    def forward(self, observation: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Memory]:  # type: ignore[override]
        """Outputs, value and the memory after one step."""
        assert self.lstm is not None
        features, mask = self.encoder(observation)
        state = self.lstm.step(features, (memory[0], memory[1]))
        return *self.answer(state[0], mask), state

    def sequence(self, observation: Tensor, memory: Memory, keep: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs (T, B, A) and values (T, B) of whole sequences (T, B, ...)."""
        assert self.lstm is not None
        features, mask = self.encoder(observation.flatten(0, 1))
        shape = observation.shape[:2]
        hidden, _ = self.lstm(features.unflatten(0, shape), (memory[0], memory[1]), keep)
        return self.answer(hidden, None if mask is None else mask.unflatten(0, shape))


def _check_mask(problem: EnvProblem) -> None:
    masks = [part for part in parts_of(problem) if part.kind == "mask"]
    if not masks:
        return
    if isinstance(problem.actions, Continuous):
        raise UserError(f"mask {masks[0].name} of {problem.name}: masks are for discrete actions; leave it out")
    size, outputs = sum(part.size for part in masks), output_count(problem.actions)
    if size != outputs:
        raise UserError(
            f"mask {masks[0].name} of {problem.name}: has {size} entries for {outputs} actions; make it one each"
        )
