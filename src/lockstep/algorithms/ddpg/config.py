"""What DDPG can be told, over all ranks, and which numbers go together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from lockstep.config.fields import Alias, Count, Fraction, OffOrCount, Range
from lockstep.config.run_config import RunConfig, nearest_to_split
from lockstep.errors import UserError

Rate = Annotated[float, Range(above=0, at_most=1)]


@dataclass(frozen=True, kw_only=True)
class DDPGConfig(RunConfig):
    """DDPG: how experience is gathered, kept and learned from."""

    total_timesteps: Annotated[int, Range(at_least=1, at_most=10**15)] = 10_000_000
    """Environment steps to train for, over all ranks, in whole rounds of n_envs x n_steps."""
    n_envs: Annotated[int, Range(at_least=1, at_most=1_048_576), Alias("num_envs")] = 64
    """Environments, over all ranks."""
    n_steps: Annotated[int, Range(at_least=1, at_most=65_536)] = 32
    """Steps of each environment in a round, which is what is logged, counted and saved as one update."""
    update_interval: Annotated[int, Range(at_least=1, at_most=65_536)] = 1
    """Steps of each environment between gradient updates; divides n_steps."""
    updates_per_interval: Annotated[int, Range(at_least=1, at_most=65_536)] = 1
    """Gradient updates every update_interval steps, the same number on every rank."""
    batch_size: Count = 512
    """Remembered steps that a gradient update learns from, over all ranks; the same number from every lane."""
    buffer_size: Annotated[int, Range(at_least=1, at_most=10**10)] = 100_000
    """Steps that are remembered, over all ranks; the oldest make room."""
    memory_format: Literal["fp16", "fp32"] = "fp16"
    """Number format in which observations are remembered; fp16 halves the memory and the checkpoints."""
    learning_starts: OffOrCount = 0
    """Steps before the first gradient update, over all ranks; 0 = as soon as batch_size steps are remembered."""
    algo: Literal["ddpg", "bicnet", "maddpg"] = "ddpg"
    """What agents know of each other: ddpg (nothing), bicnet (an LSTM along them), maddpg (the critic knows all)."""
    critic: Literal["actions", "vectors"] = "actions"
    """What the critic values: each action, weighed by the actor's vector, or the vector, which is one of its inputs."""
    remember: Literal["action", "vector"] = "action"
    """What is remembered of a choice: the action that was made, or the vector of weights that it was drawn from."""
    output_activation: Literal["softmax", "tanh"] = "softmax"
    """What makes an actor's outputs a vector of action weights."""
    twin_critics: bool = True
    """Two critics, of which the lower is believed."""
    a_lr: Rate = 3e-4
    """Adam's step size for the actor at the start."""
    c_lr: Rate = 3e-4
    """Adam's step size for the critic at the start."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rates go to 0 at total_timesteps, or that they stay."""
    adam_eps: Rate = 1e-5
    """Adam's epsilon."""
    max_grad_norm: Annotated[float, Range(above=0)] = 1.0
    """Longest gradient, of the actor and of the critic each; a longer one is shortened to this."""
    gamma: Fraction = 0.95
    """How much the next step's value counts."""
    n_step: Annotated[int, Range(at_least=1, at_most=64)] = 3
    """Steps whose rewards are counted before the targets' opinion."""
    tau: Annotated[float, Range(above=0, at_most=1)] = 0.01
    """Share of the way that the targets follow at every gradient update."""
    epsilon: Fraction = 0.5
    """Chance that all agents of an environment act at random in a step, at the start."""
    epsilon_speed: Annotated[float, Range(above=0, at_most=1)] = 0.99998
    """What epsilon is multiplied by at every environment step, counted over all ranks."""
    epsilon_min: Fraction = 0.02
    """Where epsilon stops falling."""
    entropy_coef: Annotated[float, Range(at_least=0)] = 0.0
    """Weight of the actor's entropy bonus."""

    per_rank_fields: ClassVar[tuple[str, ...]] = ("n_envs", "batch_size", "buffer_size")
    learning_rate_fields: ClassVar[tuple[str, ...]] = ("a_lr", "c_lr")

    def lane_units(self) -> int:
        """Count the environments, which is what the lanes split."""
        return self.n_envs

    @property
    def round_size(self) -> int:
        """Environment steps of one round, over all ranks."""
        return self.n_envs * self.n_steps

    @property
    def memory_rows(self) -> int:
        """Steps of each environment that are remembered."""
        return self.buffer_size // self.n_envs

    @property
    def first_update(self) -> int:
        """Environment steps after which gradient updates begin, over all ranks."""
        return max(self.learning_starts or self.batch_size, (self.n_step + 1) * self.n_envs)

    def epsilon_after(self, steps: int) -> float:
        """The chance of a random action after so many environment steps over all ranks."""
        return max(self.epsilon * self.epsilon_speed**steps, self.epsilon_min)

    def work(self, shared: Callable[[int], str]) -> list[tuple[str, str]]:
        """Environments, memory, batch and rates, and who holds how much of them."""
        rounds = self.total_timesteps // self.round_size
        ratio = self.updates_per_interval * self.batch_size / (self.update_interval * self.n_envs)
        return [
            (
                "environments",
                f"{shared(self.n_envs)} x {self.n_steps} steps = {self.round_size:,} a round, {rounds:,} rounds",
            ),
            ("memory", f"{shared(self.memory_rows * self.n_envs)} steps, learning from {self.first_update:,} on"),
            (
                "batch",
                f"{shared(self.batch_size)}, {self.updates_per_interval} update(s) every {self.update_interval} "
                f"step(s): each step is learned from {ratio:g} times; learning rates {self.a_lr:g} and {self.c_lr:g} "
                f"{self.lr_schedule}",
            ),
        ]

    def validate(self) -> None:
        """See that environments and batches fill the lanes evenly, and that the memory is large enough for both."""
        super().validate()
        lanes = self.effective_lanes
        for name in ("n_envs", "batch_size"):
            count = getattr(self, name)
            if count % lanes:
                near = nearest_to_split(count, lanes, automatic=name == "n_envs" and not self.lanes)
                raise UserError(f"{name} {count} is no multiple of the run's {lanes} lanes; nearest: {near}")
        if self.n_steps % self.update_interval:
            raise UserError(
                f"update_interval {self.update_interval} must divide n_steps {self.n_steps}: "
                "a round ends with its last gradient update; change one of them"
            )
        self._validate_memory()
        steps = self.total_timesteps // self.n_envs
        updates = steps // self.update_interval * self.updates_per_interval
        self.refuse_repetition({"steps of each environment": steps, "gradient updates": updates})
        if self.total_timesteps < self.round_size:
            raise UserError(
                f"total_timesteps {self.total_timesteps} is less than one round's n_envs x n_steps = "
                f"{self.n_envs} x {self.n_steps} = {self.round_size}; raise it, or lower --n-envs or --n-steps"
            )

    def _validate_memory(self) -> None:
        rows = (self.n_step + 1) * self.n_envs
        for needed, what in (
            (self.batch_size, f"one batch ({self.batch_size})"),
            (self.learning_starts, f"what learning_starts with ({self.learning_starts})"),
            (rows, f"n_step + 1 = {self.n_step + 1} steps of {self.n_envs} environments ({rows})"),
        ):
            if self.buffer_size < needed:
                raise UserError(f"buffer_size {self.buffer_size} is less than {what}; raise --buffer-size to {needed}")
