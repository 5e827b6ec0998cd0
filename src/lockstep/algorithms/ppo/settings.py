"""The settings of PPO, over all ranks, and which of them go together. Nothing here needs torch."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from lockstep.config.config import AlgorithmSettings, AnyConfig
from lockstep.config.fields import Alias, Count, Fraction, Range, Steps
from lockstep.config.run_settings import DEFAULT_LANES, nearest_to_split
from lockstep.errors import UserError

FEWEST_UPDATES, SHORTEST_ROLLOUT = 50, 16
"""Sizes chosen by --autotune leave so many updates of a run, and steps of each environment in an update."""
_SHARED_WITH_SB3 = (
    *("learning_rate", "n_epochs", "gamma", "gae_lambda", "clip_range", "clip_range_vf", "normalize_advantage"),
    *("ent_coef", "vf_coef", "max_grad_norm", "target_kl"),
)


@dataclass(frozen=True, kw_only=True)
class PPOSettings(AlgorithmSettings):
    """PPO: how experience is collected and learned from."""

    total_timesteps: Annotated[int, Range(at_least=1, at_most=10**15)] = 5_000_000
    """Environment steps to train for, over all ranks, in whole updates of n_envs x n_steps."""
    n_envs: Annotated[int, Range(at_least=1, at_most=1_048_576), Alias("num_envs")] = 64
    """Environments, over all ranks."""
    n_steps: Annotated[int, Range(at_least=1, at_most=65_536)] = 128
    """Steps of each environment per update."""
    batch_size: Count = 256
    """Samples of one gradient step, over all ranks; divides n_envs x n_steps."""
    grad_accum: Annotated[int, Range(at_least=1, at_most=4096)] = 1
    """Micro-batches that a batch is computed in, to save memory; the result stays the same."""
    n_epochs: Annotated[int, Range(at_least=1, at_most=1000)] = 4
    """Epochs over the rollout of one update."""
    learning_rate: Annotated[float, Range(above=0, at_most=1), Alias("lr")] = 3e-4
    """Adam's initial learning rate."""
    learning_rate_critic: Annotated[float | None, Range(above=0, at_most=1)] = None
    """The same for the critic's weights; none = learning_rate."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Whether the learning rate stays constant or falls to 0 at total_timesteps, and how."""
    adam_eps: Annotated[float, Range(above=0, at_most=1)] = 1e-5
    """Adam's epsilon."""
    gamma: Fraction = 0.99
    """Discount factor: how much the next step's value counts."""
    gae_lambda: Fraction = 0.95
    """Lambda of generalised advantage estimation, from one-step (0) to the whole return (1)."""
    clip_range: Annotated[float, Range(above=0), Alias("clip_coef")] = 0.2
    """How far the policy's probability ratio may move from 1 before it is clipped."""
    clip_range_vf: Annotated[float | None, Range(above=0)] = None
    """How far a value estimate may move from the old one before it is clipped; none = no clipping."""
    normalize_advantage: bool = True
    """Normalise the advantages of each batch to mean 0 and standard deviation 1, over all ranks."""
    normalize_observation: bool = False
    """Normalise observations by the mean and deviation of all so far, over all ranks; not images and masks."""
    normalize_reward: bool = False
    """Divide rewards by the standard deviation of discounted returns so far, over all ranks; reports stay raw."""
    squash: bool = False
    """For continuous actions: keep them within bounds by a tanh, which is part of the policy, instead of clamping."""
    ent_coef: Annotated[float, Range(at_least=0)] = 0.01
    """Weight of the entropy bonus."""
    vf_coef: Annotated[float, Range(at_least=0)] = 0.5
    """Weight of the value loss."""
    max_grad_norm: Annotated[float, Range(above=0)] = 0.5
    """Largest gradient norm, over all weights together; larger gradients are scaled down to it."""
    target_kl: Annotated[float | None, Range(above=0)] = None
    """End an update's epochs when the KL divergence exceeds 1.5 times this, as all ranks agree; none = never."""

    sequence_length: Annotated[int, Range(at_least=1, at_most=65_536)] = 16
    """For a recurrent network: steps of the sequences that it learns from; divides n_steps."""
    pretrain_bc: Steps = 0
    """First steps in which the workload's scripted expert is imitated, over all ranks, part of total_timesteps."""

    per_rank_fields: ClassVar[tuple[str, ...]] = ("n_envs", "batch_size")
    learning_rate_fields: ClassVar[tuple[str, ...]] = ("learning_rate", "learning_rate_critic")

    def lane_units(self) -> int:
        """The environments, which are divided among the lanes."""
        return self.n_envs

    @property
    def rollout_size(self) -> int:
        """Environment steps of an update, over all ranks."""
        return self.n_envs * self.n_steps

    def sizes_alike(self, given: Collection[str]) -> Iterator[dict[str, Any]]:
        """Other numbers of environments and steps for a rollout of the same size.

        Rollout, batch and epochs stay, so the gradient steps per sample and the age of the samples do: smaller rollouts
        were seen to learn worse at equal steps. Only a run whose length is given has them halved, until at least 50
        updates fit into it. n_steps is at least half of what it was, and at least 16.
        """
        # A preset's length and sizes were chosen for each other.
        fewest = FEWEST_UPDATES if self.length_field in given else 1
        most = min(self.rollout_size, max(self.total_timesteps // fewest, self.batch_size))
        powers = [0.5**power for power in range(-2, 14)]
        found = [
            (round(self.n_envs * more), round(self.n_steps * longer), abs(math.log2(longer)))
            for more in ([1.0] if "n_envs" in given else powers)
            for longer in ([1.0] if "n_steps" in given else powers[1:4])
            if most / 2 < self.n_envs * more * self.n_steps * longer <= most
            and self.n_steps * longer >= min(self.n_steps, SHORTEST_ROLLOUT)
        ]
        # The steps that were asked for come first.
        for n_envs, n_steps, _ in sorted(found, key=lambda size: size[2]):
            yield {"n_envs": n_envs, "n_steps": n_steps}
        if not found:
            yield {}

    def in_smaller_parts(self, lanes: int) -> dict[str, Any] | None:
        """Twice as many micro-batches of half the size, after an out-of-memory error; None if they cannot be halved."""
        if self.batch_size % (2 * self.grad_accum * lanes):
            return None
        return {"grad_accum": 2 * self.grad_accum}

    def work(self, shared: Callable[[int], str]) -> list[tuple[str, str]]:
        """Lines of the plan: environments, batch and learning rate, and their division among ranks."""
        updates = self.total_timesteps // self.rollout_size
        accumulated = f" in {self.grad_accum} parts" if self.grad_accum > 1 else ""
        return [
            (
                "environments",
                f"{shared(self.n_envs)} x {self.n_steps} steps = {self.rollout_size:,} an update, {updates:,} updates",
            ),
            (
                "batch",
                f"{shared(self.batch_size)}{accumulated}, {self.n_epochs} epochs, "
                f"learning rate {self.learning_rate:g} {self.lr_schedule}",
            ),
        ]

    def shared_with_sb3(self) -> dict[str, Any]:
        """The settings that Stable-Baselines3's PPO has under the same names, except rollout and batch sizes."""
        return {name: getattr(self, name) for name in _SHARED_WITH_SB3}

    @property
    def critic_rate(self) -> float:
        """The critic's learning rate as a multiple of the actor's."""
        return (self.learning_rate_critic or self.learning_rate) / self.learning_rate

    def sequence_steps(self, config: AnyConfig) -> int:
        """Steps of one sample: a sequence for a recurrent network, else 1."""
        return self.sequence_length if config.network.recurrent else 1

    def check(self, config: AnyConfig) -> None:
        """Check that environments and batches divide evenly among lanes and micro-batches, and batches the rollout."""
        lanes, length = config.effective_lanes, self.sequence_steps(config)
        if self.n_steps % length:
            fitting = [steps for steps in range(1, self.n_steps + 1) if self.n_steps % steps == 0]
            near = min(fitting, key=lambda steps: abs(steps - length))
            raise UserError(f"sequence_length {length} does not divide n_steps {self.n_steps}; nearest: {near}")
        self._check_environments(lanes, automatic=not config.run.lanes)
        parts = {"lanes": lanes, "grad_accum": self.grad_accum}
        self._check_batch(parts | ({"sequence_length": length} if config.network.recurrent else {}))
        epochs = self.total_timesteps // self.rollout_size * self.n_epochs
        # Both are counters of random streams, which have 32 bits.
        config.refuse_repetition({"steps of each environment": self.total_timesteps // self.n_envs, "epochs": epochs})
        if self.total_timesteps < self.rollout_size:
            raise UserError(
                f"total_timesteps {self.total_timesteps} is less than one update's n_envs x n_steps = "
                f"{self.n_envs} x {self.n_steps} = {self.rollout_size}; raise it, or lower --n-envs or --n-steps"
            )

    def _check_environments(self, lanes: int, automatic: bool) -> None:
        if self.n_envs % lanes == 0:
            return
        # Another number of lanes that would divide both the environments and the batch.
        common = math.gcd(self.n_envs, self.batch_size // self.grad_accum)
        other = max(count for count in range(1, DEFAULT_LANES + 1) if common % count == 0)
        raise UserError(
            f"n_envs {self.n_envs} must be a multiple of the run's {lanes} lanes; "
            f"nearest: {nearest_to_split(self.n_envs, lanes, automatic=automatic)}"
            + (f"; or set --lanes {other}" if other > 1 else "")
        )

    def _check_batch(self, parts: Mapping[str, int]) -> None:
        """`parts`: the divisors of a batch, by name for the message."""
        size, unit = self.rollout_size, math.prod(parts.values())
        if size % self.batch_size == 0 and self.batch_size % unit == 0:
            return
        fitting = batch_sizes(size, unit)
        smaller = max((batch for batch in fitting if batch < self.batch_size), default=None)
        larger = min((batch for batch in fitting if batch > self.batch_size), default=None)
        near = " or ".join(str(batch) for batch in (smaller, larger) if batch) or "none; lower --grad-accum"
        raise UserError(
            f"batch_size {self.batch_size} must divide n_envs x n_steps = {self.n_envs} x {self.n_steps} = {size} "
            f"and be a multiple of {' x '.join(parts)} = {' x '.join(map(str, parts.values()))} = {unit}; "
            f"nearest: {near}"
        )


def batch_sizes(rollout_size: int, unit: int) -> list[int]:
    """Every batch size that divides the rollout and is a multiple of `unit`, smallest first."""
    if rollout_size % unit:
        return []
    parts = rollout_size // unit
    # Divisors come in pairs around the square root; trying every number would take seconds for large rollouts.
    low = [count for count in range(1, math.isqrt(parts) + 1) if parts % count == 0]
    return [unit * count for count in sorted({*low, *(parts // count for count in low)})]
