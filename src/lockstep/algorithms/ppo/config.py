"""What PPO can be told, over all ranks, and which numbers go together."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from lockstep.config.fields import Alias, Count, Fraction, Range
from lockstep.config.run_config import DEFAULT_LANES, RunConfig, nearest_to_split
from lockstep.errors import UserError

_SHARED_WITH_SB3 = (
    *("learning_rate", "n_epochs", "gamma", "gae_lambda", "clip_range", "clip_range_vf", "normalize_advantage"),
    *("ent_coef", "vf_coef", "max_grad_norm", "target_kl"),
)


@dataclass(frozen=True, kw_only=True)
class PPOConfig(RunConfig):
    """PPO: how experience is gathered and learned from."""

    total_timesteps: Annotated[int, Range(at_least=1, at_most=10**15)] = 5_000_000
    """Environment steps to train for, over all ranks, in whole updates of n_envs x n_steps."""
    n_envs: Annotated[int, Range(at_least=1, at_most=1_048_576), Alias("num_envs")] = 64
    """Environments, over all ranks."""
    n_steps: Annotated[int, Range(at_least=1, at_most=65_536)] = 128
    """Steps of each environment between updates."""
    batch_size: Count = 256
    """Samples of one gradient step, over all ranks; divides n_envs x n_steps."""
    grad_accum: Annotated[int, Range(at_least=1, at_most=4096)] = 1
    """Parts that a batch is computed in, to need less memory; the result stays the same."""
    n_epochs: Annotated[int, Range(at_least=1, at_most=1000)] = 4
    """Epochs over the experience of one update."""
    learning_rate: Annotated[float, Range(above=0, at_most=1), Alias("lr")] = 3e-4
    """Adam's step size at the start."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate goes to 0 at total_timesteps, or that it stays."""
    adam_eps: Annotated[float, Range(above=0, at_most=1)] = 1e-5
    """Adam's epsilon."""
    gamma: Fraction = 0.99
    """How much the next step's value counts."""
    gae_lambda: Fraction = 0.95
    """Advantage estimate between one step (0) and the whole return (1)."""
    clip_range: Annotated[float, Range(above=0), Alias("clip_coef")] = 0.2
    """How far the policy's probability ratio may move from 1 before its gradient is cut."""
    clip_range_vf: Annotated[float | None, Range(above=0)] = None
    """How far a value estimate may move from the old one before its gradient is cut; none = no limit."""
    normalize_advantage: bool = True
    """Give the advantages of each batch mean 0 and deviation 1, over all ranks."""
    ent_coef: Annotated[float, Range(at_least=0)] = 0.01
    """Weight of the entropy bonus."""
    vf_coef: Annotated[float, Range(at_least=0)] = 0.5
    """Weight of the value loss."""
    max_grad_norm: Annotated[float, Range(above=0)] = 0.5
    """Longest gradient, over all weights together; a longer one is shortened to this."""
    target_kl: Annotated[float | None, Range(above=0)] = None
    """End an update's passes when the policy moved this far, as all ranks agree; none = never."""

    per_rank_fields: ClassVar[tuple[str, ...]] = ("n_envs", "batch_size")
    learning_rate_fields: ClassVar[tuple[str, ...]] = ("learning_rate",)

    def lane_units(self) -> int:
        """Count the environments, which is what the lanes split."""
        return self.n_envs

    @property
    def rollout_size(self) -> int:
        """Environment steps of one update, over all ranks."""
        return self.n_envs * self.n_steps

    def in_smaller_parts(self) -> Self | None:
        """Compute the same batches in twice as many parts."""
        if self.batch_size % (2 * self.grad_accum * self.effective_lanes):
            return None
        return replace(self, grad_accum=2 * self.grad_accum)

    def work(self, shared: Callable[[int], str]) -> list[tuple[str, str]]:
        """Environments, batch and rate, and who holds how much of them."""
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
        """What Stable-Baselines3's PPO has under the same names, but for the sizes of a roll-out and a batch."""
        return {name: getattr(self, name) for name in _SHARED_WITH_SB3}

    def validate(self) -> None:
        """See that environments fill the lanes evenly, and batches the lanes, their parts and the experience."""
        super().validate()
        self._validate_environments()
        self._validate_batch()
        passes = self.total_timesteps // self.rollout_size * self.n_epochs
        self.refuse_repetition({"steps of each environment": self.total_timesteps // self.n_envs, "epochs": passes})
        if self.total_timesteps < self.rollout_size:
            raise UserError(
                f"total_timesteps {self.total_timesteps} is less than one update's n_envs x n_steps = "
                f"{self.n_envs} x {self.n_steps} = {self.rollout_size}; raise it, or lower --n-envs or --n-steps"
            )

    def _validate_environments(self) -> None:
        lanes = self.effective_lanes
        if self.n_envs % lanes == 0:
            return
        common = math.gcd(self.n_envs, self.batch_size // self.grad_accum)
        other = max(count for count in range(1, DEFAULT_LANES + 1) if common % count == 0)
        raise UserError(
            f"n_envs {self.n_envs} is no multiple of the run's {lanes} lanes; "
            f"nearest: {nearest_to_split(self.n_envs, lanes, automatic=not self.lanes)}"
            + (f"; or set --lanes {other}" if other > 1 else "")
        )

    def batch_parts(self) -> dict[str, int]:
        """List what a batch is divided by, with a name for each."""
        return {"lanes": self.effective_lanes, "grad_accum": self.grad_accum}

    def _validate_batch(self) -> None:
        parts, size = self.batch_parts(), self.rollout_size
        unit = math.prod(parts.values())
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


@dataclass(frozen=True, kw_only=True)
class RecurrentPPOConfig(PPOConfig):
    """PPO for a network that remembers: it learns from whole sequences of steps."""

    sequence_length: Annotated[int, Range(at_least=1, at_most=65_536)] = 16
    """Steps that are learned from as one sequence, from the memory that it began with; divides n_steps."""

    def batch_parts(self) -> dict[str, int]:
        """List what a batch is divided by: also the length of a sequence, since none is torn apart."""
        return super().batch_parts() | {"sequence_length": self.sequence_length}

    def validate(self) -> None:
        """See that sequences fill a roll-out."""
        if self.n_steps % self.sequence_length:
            fitting = [length for length in range(1, self.n_steps + 1) if self.n_steps % length == 0]
            nearest = min(fitting, key=lambda length: abs(length - self.sequence_length))
            raise UserError(
                f"sequence_length {self.sequence_length} does not divide n_steps {self.n_steps}; nearest: {nearest}"
            )
        super().validate()


def batch_sizes(rollout_size: int, unit: int) -> list[int]:
    """List every size of batch that divides the experience of an update and is a multiple of `unit`, smallest first."""
    if rollout_size % unit:
        return []
    parts = rollout_size // unit
    low = [count for count in range(1, math.isqrt(parts) + 1) if parts % count == 0]
    return [unit * count for count in sorted({*low, *(parts // count for count in low)})]
