"""What reinforcement learning algorithms are given: environments as tensors, on host or GPU. E: environments."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from lockstep.envs.spaces import Actions, Continuous, Discrete, MultiDiscrete, Part
from lockstep.envs.vector_env import BatchedEnv, TeamEnv
from lockstep.errors import UserError
from lockstep.rl.distributions import (
    ActionFamily,
    CategoricalActions,
    GaussianActions,
    MultiCategoricalActions,
    SquashedGaussianActions,
)
from lockstep.rl.opponent_pool import OpponentPool
from lockstep.rl.rollout import Episodes

__all__ = ["Continuous", "Discrete", "EnvProblem", "MultiDiscrete", "Part", "Tasks", "TeamProblem"]

MakeEnv = Callable[[Tensor, int], Any]
"""(index (E,), seed) -> a BatchedEnv of the environments with these numbers, which are unique in the whole run."""
Teacher = Callable[[Any], Tensor]
"""A scripted expert: environment -> actions (E,). It may read the environment's state."""
Describe = Callable[[Episodes], dict[str, Tensor]]
"""Additional metrics of finished episodes, by name; a metric may cover only some of the episodes."""
"""Reads the initial weights of a run. Called before its first step, so that a resumed run needs no file."""


@dataclass(frozen=True)
class Tasks:
    """What is known in advance about each task; several if one model learns them together."""

    action_sizes: tuple[int, ...]
    episode_lengths: tuple[int, ...]
    terminates: bool
    """Whether an episode can end by the rules before its time limit."""
    names: tuple[str, ...] = ()
    """Their names in reports; empty = a single task, or tasks without names."""

    def __len__(self) -> int:
        return len(self.action_sizes)


@dataclass(frozen=True)
class Forecast:
    """An auxiliary task for a recurrent network: predict part of the next observation."""

    weight: float
    """Weight of its squared error in the loss."""
    target: Callable[[Tensor], Tensor]
    """Observations (T, S, ...) -> the K numbers that should have been predicted one step earlier, (T, S, K)."""


@dataclass(kw_only=True)
class EnvProblem:
    """Environments with one agent each."""

    name: str
    """Prefix of the metrics that the environments report themselves."""
    observation_shape: tuple[int, ...]
    actions: Actions
    make_env: MakeEnv
    parts: tuple[Part, ...] = ()
    """What an observation vector is put together from; empty = it is one tensor."""
    image_bytes: bool = False
    """Whether observations are images of bytes (uint8); else they are float32."""
    make_test: MakeEnv | None = None
    """Environments for evaluation, if they differ from the training ones; None = the same."""
    hosted: bool = False
    """Whether the environments run on the host; then a CUDA graph cannot contain their steps."""
    batch_invariant: bool = False
    """Whether an environment computes the same bits whatever the number of others in its batch. Then exact mode, too,
    steps all environments of a rank at once."""
    restarts: bool = False
    """Whether unfinished episodes are lost at a resume and new ones begin; then exact mode cannot resume."""
    masked: bool = False
    """Whether some steps take no action (see `Transition.valid`), and must not be learned from."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Facts about the data that the environments use, and its `digest`; a run is resumed with the same only."""
    tasks: Tasks | None = None
    teacher: Teacher | None = None
    """The expert for behaviour cloning (pretrain_bc), if there is one."""
    forecast: Forecast | None = None
    describe: Describe | None = None

    @property
    def action_family(self) -> ActionFamily:
        """How the policy network's outputs become actions."""
        if isinstance(self.actions, Discrete):
            return CategoricalActions()
        if isinstance(self.actions, MultiDiscrete):
            return MultiCategoricalActions(self.actions.counts)
        return GaussianActions(self.actions.size)

    def refuse_inexact_resume(self, sync: str) -> None:
        """Raise UserError if a resumed run could not end in the same bits although it is asked to."""
        _refuse_inexact_resume(self, sync)

    def action_family_with(self, squash: bool) -> ActionFamily:
        """The same, with continuous actions squashed by a tanh instead of clamped."""
        if squash and isinstance(self.actions, Continuous):
            return SquashedGaussianActions(self.actions.size)
        return self.action_family

    def environments(self, index: Tensor, seed: int) -> BatchedEnv:
        """Environments for training."""
        return self.make_env(index, seed)

    def test_environments(self, index: Tensor, seed: int) -> BatchedEnv:
        """Environments for evaluation."""
        return (self.make_test or self.make_env)(index, seed)


def _refuse_inexact_resume(problem: "EnvProblem | TeamProblem", sync: str) -> None:
    if problem.restarts and sync == "exact":
        raise UserError(
            f"{problem.name}: cannot be resumed with sync exact: unfinished episodes of these environments are lost, "
            "so the result would differ; resume with --sync fast, or give the environment `state` and `load`"
        )


@dataclass(kw_only=True)
class TeamProblem:
    """Environments in which several agents act at once, each with its own observation and reward."""

    name: str
    observation_shape: tuple[int, ...]
    """(agents, ...): the observations of all agents of one environment."""
    actions: Discrete | Continuous
    """Of each agent."""
    make_env: Callable[[Tensor, int], TeamEnv]
    make_test: Callable[[Tensor, int], BatchedEnv]
    """Environments for evaluation, with one reward for the whole team."""
    image_bytes: bool = False
    """Whether observations are images of bytes (uint8); else they are float32."""
    opponent_pool: OpponentPool | None = None
    """Earlier versions of the actor, as opponents; None = no self-play."""
    pool_update_every: int = 0
    """Gradient updates after which the current actor replaces the oldest version in the pool."""
    ragged: bool = False
    """Whether agents may leave before an episode's end and episodes may be truncated (see `TeamEnv`)."""
    hosted: bool = False
    """Whether the environments run on the host; then a CUDA graph cannot contain their steps."""
    batch_invariant: bool = False
    """Whether an environment computes the same bits whatever the number of others in its batch (see `EnvProblem`)."""
    restarts: bool = False
    """Whether unfinished episodes are lost at a resume and new ones begin; then exact mode cannot resume."""
    alone: bool = False
    """Whether there is one agent, in an environment that knows of no others: only training gives it an axis."""

    @property
    def shown_shape(self) -> tuple[int, ...]:
        """The observation that a trained model acts on: (agents, ...), or (...) for an agent alone."""
        return self.observation_shape[1:] if self.alone else self.observation_shape

    def refuse_inexact_resume(self, sync: str) -> None:
        """Raise UserError if a resumed run could not end in the same bits although it is asked to."""
        _refuse_inexact_resume(self, sync)
