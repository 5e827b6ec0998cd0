"""The settings of DDPG and of its network, counted over all ranks, with their checks. Needs no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from lockstep.config.config import AlgorithmSettings, AnyConfig, Config, NetworkSettings, WorkloadSettings
from lockstep.config.fields import Alias, Count, Fraction, OffOrCount, Range
from lockstep.config.run_settings import nearest_to_split
from lockstep.envs.spaces import Continuous
from lockstep.errors import UserError

if TYPE_CHECKING:
    from lockstep.algorithms.ddpg.networks import TeamNetworks
    from lockstep.rl.problem import TeamProblem

Rate = Annotated[float, Range(above=0, at_most=1)]


@dataclass(frozen=True, kw_only=True)
class DDPGSettings(AlgorithmSettings):
    """DDPG: how experience is collected and stored, and how the networks learn from it."""

    total_timesteps: Annotated[int, Range(at_least=1, at_most=10**15)] = 10_000_000
    """Environment steps to train for, over all ranks, in whole rounds of n_envs x n_steps."""
    n_envs: Annotated[int, Range(at_least=1, at_most=1_048_576), Alias("num_envs")] = 64
    """Environments, over all ranks."""
    n_steps: Annotated[int, Range(at_least=1, at_most=65_536)] = 32
    """Steps of each environment in a round; a round is logged, counted and saved as one update."""
    update_interval: Annotated[int, Range(at_least=1, at_most=65_536)] = 1
    """Steps of each environment between gradient updates; divides n_steps."""
    updates_per_interval: Annotated[int, Range(at_least=1, at_most=65_536)] = 1
    """Gradient updates every update_interval steps, the same number on every rank."""
    batch_size: Count = 512
    """Samples per gradient update, over all ranks; the same number from every lane."""
    buffer_size: Annotated[int, Range(at_least=1, at_most=10**10)] = 100_000
    """Steps in the replay buffer, over all ranks; new ones overwrite the oldest."""
    memory_format: Literal["fp16", "fp32"] = "fp16"
    """Number format of stored observations; fp16 halves the memory and the checkpoints."""
    learning_starts: OffOrCount = 0
    """Steps before the first gradient update, over all ranks; 0 = as soon as batch_size steps are stored."""
    algo: Literal["ddpg", "bicnet", "maddpg"] = "ddpg"
    """What agents know of each other: ddpg (nothing), bicnet (an LSTM along them), maddpg (the critic sees all)."""
    critic: Literal["actions", "vectors"] = "actions"
    """What the critic values: each action, weighted by the actor's vector, or the vector as an input (if discrete)."""
    remember: Literal["action", "vector"] = "action"
    """What the replay buffer stores: the action that was taken, or the vector of weights it was sampled from."""
    output_activation: Literal["softmax", "tanh"] = "softmax"
    """Activation that turns an actor's outputs into a vector of action weights."""
    twin_critics: bool = True
    """Use the lower value of two critics."""
    a_lr: Rate = 3e-4
    """Adam's initial learning rate for the actor."""
    c_lr: Rate = 3e-4
    """Adam's initial learning rate for the critic."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Whether the learning rates stay constant or fall to 0 at total_timesteps, and how."""
    adam_eps: Rate = 1e-5
    """Adam's epsilon."""
    max_grad_norm: Annotated[float, Range(above=0)] = 1.0
    """Largest gradient norm, of actor and critic each; larger gradients are scaled down to it."""
    gamma: Fraction = 0.95
    """Discount factor: how much the next step's value counts."""
    n_step: Annotated[int, Range(at_least=1, at_most=64)] = 3
    """Steps whose rewards are counted before the target networks' estimate."""
    tau: Annotated[float, Range(above=0, at_most=1)] = 0.01
    """Rate at which the target networks follow the networks, per gradient update."""
    epsilon: Fraction = 0.5
    """Probability that all agents of an environment act at random in a step, at the start."""
    epsilon_speed: Annotated[float, Range(above=0, at_most=1)] = 0.99998
    """Factor by which epsilon falls at every environment step, counted over all ranks."""
    epsilon_min: Fraction = 0.02
    """Lowest value of epsilon."""
    exploration_noise: Annotated[float, Range(at_least=0, at_most=1)] = 0.1
    """Standard deviation of the noise on continuous actions, whose components go from -1 to 1."""
    entropy_coef: Annotated[float, Range(at_least=0)] = 0.0
    """Weight of the actor's entropy bonus."""

    # Fields that weak scaling multiplies by the world size, and those that lr_scaling applies to.
    per_rank_fields: ClassVar[tuple[str, ...]] = ("n_envs", "batch_size", "buffer_size")
    learning_rate_fields: ClassVar[tuple[str, ...]] = ("a_lr", "c_lr")

    def lane_units(self) -> int:
        """The environments, which are split into lanes."""
        return self.n_envs

    @property
    def round_size(self) -> int:
        """Environment steps of one round, over all ranks."""
        return self.n_envs * self.n_steps

    @property
    def memory_rows(self) -> int:
        """Replay rows: stored steps of each environment."""
        # Rounded down to whole rows, because every row holds one step of every environment.
        return self.buffer_size // self.n_envs

    @property
    def first_update(self) -> int:
        """Environment steps after which gradient updates begin, over all ranks."""
        # At least n_step + 1 rows: a sample needs a row and n_step rows after it.
        return max(self.learning_starts or self.batch_size, (self.n_step + 1) * self.n_envs)

    def epsilon_after(self, steps: int) -> float:
        """The probability of random actions after `steps` environment steps over all ranks."""
        return max(self.epsilon * self.epsilon_speed**steps, self.epsilon_min)

    def work(self, shared: Callable[[int], str]) -> list[tuple[str, str]]:
        """Lines of the plan: environments, replay buffer, batch and learning rates, and their division among ranks."""
        rounds = self.total_timesteps // self.round_size
        # How often the average step is sampled: samples drawn per step collected.
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
        """Check that a round ends with a gradient update, and that the replay buffer is large enough."""
        if self.n_steps % self.update_interval:
            raise UserError(
                f"update_interval {self.update_interval} must divide n_steps {self.n_steps}: "
                "a round ends with its last gradient update; change one of them"
            )
        self._validate_memory()

    def check(self, config: AnyConfig) -> None:
        """Check that environments and batches split evenly into lanes, and that the run has at least one round."""
        lanes = config.effective_lanes
        for name in ("n_envs", "batch_size"):
            count = getattr(self, name)
            if count % lanes:
                near = nearest_to_split(count, lanes, automatic=name == "n_envs" and not config.run.lanes)
                raise UserError(f"{name} {count} must be a multiple of the run's {lanes} lanes; nearest: {near}")
        steps = self.total_timesteps // self.n_envs
        updates = steps // self.update_interval * self.updates_per_interval
        config.refuse_repetition({"steps of each environment": steps, "gradient updates": updates})
        # A workload may set the length in other units (games), so it is final only here, not in `validate`.
        if self.total_timesteps < self.round_size:
            raise UserError(
                f"total_timesteps {self.total_timesteps} is less than one round's n_envs x n_steps = "
                f"{self.n_envs} x {self.n_steps} = {self.round_size}; raise it, or lower --n-envs or --n-steps"
            )

    def _validate_memory(self) -> None:
        # A sample needs its own row and the n_step rows after it.
        rows = (self.n_step + 1) * self.n_envs
        for needed, reason in (
            (self.batch_size, f"one batch ({self.batch_size})"),
            (self.learning_starts, f"learning_starts ({self.learning_starts})"),
            (rows, f"n_step + 1 = {self.n_step + 1} steps of {self.n_envs} environments ({rows})"),
        ):
            if self.buffer_size < needed:
                raise UserError(
                    f"buffer_size {self.buffer_size} is less than {reason}; raise --buffer-size to {needed}"
                )


@dataclass(frozen=True, kw_only=True)
class TeamMLPSettings(NetworkSettings):
    """The network: perceptrons for actor and critic, shared by all agents; with bicnet, an LSTM along the agents.

    Convolutions come first if agents see images.
    """

    hidden_size: Annotated[int, Range(at_least=8, at_most=4096)] = 256
    """Width of the networks."""
    hidden_layers: Annotated[int, Range(at_least=1, at_most=8)] = 2
    """Layers of the networks before their outputs."""

    def build(self, problem: "TeamProblem", config: AnyConfig) -> "TeamNetworks":
        """The actor and the critics for a team; the algorithm's settings decide how they are connected."""
        # Imported here, because settings are read before torch is needed.
        from lockstep.algorithms.ddpg.networks import Sizes, build_networks

        settings = config.algorithm
        assert isinstance(settings, DDPGSettings)
        agents, *shape = problem.observation_shape
        if len(shape) not in (1, 3):
            allowed = "(features,), or (channels, height, width)"
            raise UserError(f"network mlp: {problem.name} shows each agent an array {tuple(shape)}; allowed: {allowed}")
        # A value that is linear in a continuous action could have its best only at the bounds.
        outputs, values = (
            (problem.actions.size, "vectors")
            if isinstance(problem.actions, Continuous)
            else (problem.actions.count, settings.critic)
        )
        sizes = Sizes(
            features=shape[0] if len(shape) == 1 else self.hidden_size,
            image=(shape[0], shape[1], shape[2]) if len(shape) == 3 else None,
            agents=agents,
            actions=outputs,
            hidden=self.hidden_size,
            layers=self.hidden_layers,
            critics=2 if settings.twin_critics else 1,
        )
        return build_networks(settings.algo, sizes, config.run.seed, values)


@dataclass(frozen=True, kw_only=True)
class MADDPGSettings(DDPGSettings):
    """DDPG whose critics see all agents: how experience is collected and stored, and how the networks learn from it."""

    algo: Literal["ddpg", "bicnet", "maddpg"] = "maddpg"
    """What agents know of each other: ddpg (nothing), bicnet (an LSTM along them), maddpg (the critic sees all)."""


DDPGConfig = Config[DDPGSettings, WorkloadSettings, NetworkSettings]
