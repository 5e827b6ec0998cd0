"""The settings of TD-MPC2, over all ranks, and the checks between them. Nothing here needs torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from lockstep.config.config import AlgorithmSettings, AnyConfig, NetworkSettings
from lockstep.config.fields import Alias, Count, Fraction, OffOrCount, OptionalPath, Range
from lockstep.config.run_settings import nearest_to_split
from lockstep.errors import UserError

Rate = Annotated[float, Range(above=0, at_most=1)]
Positive = Annotated[float, Range(above=0)]
Weight = Annotated[float, Range(at_least=0)]

LARGE_ACTION, FURTHER_ITERATIONS = 20, 2
"""Actions of at least this size get this many additional iterations of planning."""


@dataclass(frozen=True, kw_only=True)
class TDMPC2Settings(AlgorithmSettings):
    """TD-MPC2: how experience is collected, learned from and planned with."""

    steps: Annotated[int, Range(at_least=1, at_most=10**15), Alias("total_timesteps")] = 10_000_000
    """Agent steps to train for, over all ranks, in whole rounds of num_envs x n_steps."""
    num_envs: Annotated[int, Range(at_least=1, at_most=65_536), Alias("n_envs")] = 1
    """Environments, over all ranks."""
    n_steps: Annotated[int, Range(at_least=1, at_most=65_536)] = 100
    """Steps of each environment in a round; a round is logged, counted and saved as one update."""
    seed_steps: OffOrCount = 0
    """Agent steps with random actions at the start, over all ranks; 0 = five episodes, at least 1000."""
    pretrain_updates: OffOrCount = 0
    """Gradient updates after the random actions; 0 = seed_steps x updates_per_step."""
    updates_per_step: Annotated[float, Range(above=0, at_most=64)] = 1.0
    """Gradient updates per agent step, over all ranks; the same number on every rank."""
    sync_freq: Annotated[int, Range(at_least=1, at_most=1024)] = 1
    """Gradient updates that are accumulated, averaged over all ranks and applied as one optimiser step."""
    batch_size: Count = 256
    """Sequences per gradient update, over all ranks; the same number from every lane."""
    buffer_size: Annotated[int, Range(at_least=1, at_most=10**10)] = 1_000_000
    """Agent steps in the replay buffer, over all ranks; new ones overwrite the oldest."""

    data_dir: OptionalPath = ""
    """Directory of episode files to learn from offline; then a step is a gradient update. None = act."""
    data_on: Literal["auto", "device", "host"] = "auto"
    """Where recorded episodes are kept; host = in files, from which batches are copied; auto = by free memory."""
    episodic: bool | None = None
    """Whether the world model predicts that an episode ends by the rules; none = if the task can end."""

    mpc: bool = True
    """Plan; otherwise the policy prior acts alone."""
    horizon: Annotated[int, Range(at_least=1, at_most=64)] = 3
    """Steps predicted into the future, in planning and in learning."""
    iterations: Annotated[int, Range(at_least=1, at_most=64)] = 6
    """Iterations of planning; two more for actions of size 20 or more."""
    num_samples: Annotated[int, Range(at_least=1, at_most=65_536)] = 512
    """Action sequences sampled in each iteration."""
    num_elites: Annotated[int, Range(at_least=1, at_most=65_536)] = 64
    """Best sequences, around which the next iteration samples."""
    num_pi_trajs: Annotated[int, Range(at_least=0, at_most=65_536)] = 24
    """Sequences proposed by the policy prior."""
    min_std: Positive = 0.05
    """Least standard deviation of sampled actions."""
    max_std: Positive = 2.0
    """Largest standard deviation of sampled actions, and the initial one."""
    temperature: Positive = 0.5
    """How much more the better sequences count; 0 would be equally."""

    lr: Annotated[Rate, Alias("learning_rate")] = 3e-4
    """Adam's learning rate."""
    enc_lr_scale: Positive = 0.3
    """Factor of the encoder's learning rate."""
    grad_clip_norm: Positive = 20.0
    """Largest gradient norm, of world model and policy prior each; larger gradients are scaled down to it."""
    tau: Rate = 0.01
    """Rate at which the target network and the value scale follow, per optimiser step."""
    rho: Fraction = 0.5
    """Factor by which each further step into the future counts less in the losses."""
    consistency_coef: Weight = 20.0
    """Weight of the latent state prediction loss."""
    reward_coef: Weight = 0.1
    """Weight of the reward prediction loss."""
    value_coef: Weight = 0.1
    """Weight of the value prediction loss."""
    termination_coef: Weight = 1.0
    """Weight of the termination prediction loss."""
    entropy_coef: Weight = 1e-4
    """Weight of the policy prior's entropy."""
    discount_denom: Positive = 5.0
    """The discount's horizon as a fraction of an episode: discount = 1 - discount_denom / episode length."""
    discount_min: Fraction = 0.95
    """Least discount."""
    discount_max: Fraction = 0.995
    """Largest discount."""

    length_field: ClassVar[str] = "steps"
    per_rank_fields: ClassVar[tuple[str, ...]] = ("num_envs", "batch_size", "buffer_size")
    learning_rate_fields: ClassVar[tuple[str, ...]] = ("lr",)
    path_fields: ClassVar[tuple[str, ...]] = ("data_dir",)

    def discount_of(self, episode_length: int) -> float:
        """The discount factor for episodes of this length."""
        # The official program's heuristic: the discount's horizon is a fixed fraction of an episode.
        part = episode_length / self.discount_denom
        return min(max((part - 1.0) / part, self.discount_min), self.discount_max)

    def iterations_for(self, action: int) -> int:
        """Iterations of planning for actions of this size."""
        return self.iterations + (FURTHER_ITERATIONS if action >= LARGE_ACTION else 0)

    def random_steps(self, episode_length: int) -> int:
        """Agent steps with random actions, over all ranks."""
        return self.seed_steps or max(1000, 5 * episode_length)

    @property
    def offline(self) -> bool:
        """Whether the run learns from recorded episodes only; then a step is a gradient update."""
        return bool(self.data_dir)

    @property
    def stride(self) -> int:
        """Steps made at a time, over all ranks."""
        return 1 if self.offline else self.num_envs

    def updates_after(self, steps: int, episode_length: int) -> int:
        """Gradient updates that are due after so many agent steps over all ranks."""
        if self.offline:
            # One update per step, and a step is counted only after its update.
            return steps + 1
        start = self.random_steps(episode_length)
        if steps < start:
            return 0
        # All updates of the random steps are due at once, then the ratio holds for the steps after them.
        first = self.pretrain_updates or int(start * self.updates_per_step)
        return first + int((steps - start) * self.updates_per_step)

    def lane_units(self) -> int:
        """The environments, which are divided among the lanes; 0 = any number of lanes, for recorded episodes."""
        return 0 if self.offline else self.num_envs

    def scaled(self, size: int, rate: float) -> dict[str, Any]:
        """Weak scaling: each rank keeps its environments, its batch and its number of updates."""
        # Steps are counted over all ranks, so the same updates per environment step are fewer per counted step.
        return super().scaled(size, rate) | {"updates_per_step": self.updates_per_step / size}

    @property
    def round_size(self) -> int:
        """Agent steps of one round, over all ranks."""
        return self.stride * self.n_steps

    def forbids_resume(self, before: AlgorithmSettings) -> set[str]:
        """Forbid a longer run if its replay buffer would be larger: other sequences would be sampled."""
        assert isinstance(before, TDMPC2Settings)
        return set() if self.memory_rows == before.memory_rows else {self.length_field}

    @property
    def memory_rows(self) -> int:
        """Replay rows: stored steps of each environment, no more than the run has."""
        return min(self.buffer_size, self.steps + self.num_envs) // self.num_envs

    def work(self, shared: Callable[[int], str]) -> list[tuple[str, str]]:
        """Lines of the plan: environments, replay buffer, batch and updates, and their division among ranks."""
        rounds = self.steps // self.round_size  # a last, partial round is not played
        applied = f", applied {self.sync_freq} at a time" if self.sync_freq > 1 else ""
        ratio = "" if self.offline else f", {self.updates_per_step:g} update(s) a step"
        batch = (
            f"{shared(self.batch_size)} sequences of {self.horizon} steps{ratio}{applied}; learning rate {self.lr:g}"
        )
        if self.offline:
            return [("updates", f"{self.steps:,} from data, {self.n_steps} a round"), ("batch", batch)]
        envs = f"{shared(self.num_envs)} x {self.n_steps} steps = {self.round_size:,} a round, {rounds:,} rounds"
        memory = f"{shared(self.memory_rows * self.num_envs)} steps"
        return [("environments", envs), ("memory", memory), ("batch", batch)]

    def validate(self) -> None:
        """Check that minima are not above maxima."""
        pairs = (
            ("num_elites", "num_samples"),
            ("num_pi_trajs", "num_samples"),
            ("min_std", "max_std"),
            ("discount_min", "discount_max"),
        )
        for less, more in pairs:
            check_order(self, less, more)

    def check(self, config: AnyConfig) -> None:
        """Check that environments and batch divide evenly among lanes, and that the replay buffer suffices."""
        lanes = config.effective_lanes
        # Every lane gets as many environments and samples as the others, so that lanes can move between ranks.
        for name in ("batch_size",) if self.offline else ("num_envs", "batch_size"):
            count = getattr(self, name)
            if count % lanes:
                near = nearest_to_split(count, lanes, automatic=name == "num_envs" and not config.run.lanes)
                raise UserError(f"{name} {count} must be a multiple of the run's {lanes} lanes; nearest: {near}")
        self._check_memory()
        # Random numbers are drawn by 32-bit counters of steps and updates: neither may wrap during a run.
        updates = self.steps if self.offline else self.pretrain_updates + int(self.steps * self.updates_per_step)
        config.refuse_repetition({"steps of each environment": self.steps // self.stride, "gradient updates": updates})

    def _check_memory(self) -> None:
        if self.offline:
            if self.steps < self.n_steps:
                raise UserError(
                    f"steps {self.steps} is less than one round's n_steps = {self.n_steps}; raise it or lower --n-steps"
                )
            return
        # The replay buffer keeps one complete sequence in reserve, which takes room for two.
        needed = 2 * self.horizon * self.num_envs
        if self.memory_rows < 2 * self.horizon:
            raise UserError(
                f"buffer_size {self.buffer_size} and steps {self.steps} must be at least {needed}: twice the horizon "
                f"of {self.horizon} for each of {self.num_envs} environments; raise them"
            )
        if self.steps < self.round_size:
            raise UserError(
                f"steps {self.steps} is less than one round's num_envs x n_steps = "
                f"{self.num_envs} x {self.n_steps} = {self.round_size}; raise it, or lower --num-envs or --n-steps"
            )
        if 0 < self.seed_steps < self.horizon * self.num_envs:
            raise UserError(
                f"seed_steps {self.seed_steps} is less than horizon x num_envs = {self.horizon} x {self.num_envs} = "
                f"{self.horizon * self.num_envs}: too few to learn from; raise it"
            )


def check_order(settings: AlgorithmSettings | NetworkSettings, less: str, more: str) -> None:
    """UserError if the setting `less` is larger than the setting `more`."""
    low, high = getattr(settings, less), getattr(settings, more)
    if low > high:
        raise UserError(f"{less} {low:g} is more than {more} {high:g}; lower it")
