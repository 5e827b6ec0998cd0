"""What TD-MPC2 can be told, over all ranks, and which numbers go together. Nothing here needs torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

from lockstep.config.fields import Alias, Count, Fraction, OffOrCount, Range
from lockstep.config.run_config import RunConfig, nearest_to_split
from lockstep.errors import UserError

Rate = Annotated[float, Range(above=0, at_most=1)]
Positive = Annotated[float, Range(above=0)]
Weight = Annotated[float, Range(at_least=0)]
Width = Annotated[int, Range(at_least=0, at_most=16_384)]

MODEL_SIZES: Mapping[int, Mapping[str, int]] = {
    1: {"enc_dim": 256, "mlp_dim": 384, "latent_dim": 128, "num_enc_layers": 2, "num_q": 2, "task_dim": 96},
    5: {"enc_dim": 256, "mlp_dim": 512, "latent_dim": 512, "num_enc_layers": 2, "num_q": 5, "task_dim": 64},
    19: {"enc_dim": 1024, "mlp_dim": 1024, "latent_dim": 768, "num_enc_layers": 3, "num_q": 5, "task_dim": 64},
    48: {"enc_dim": 1792, "mlp_dim": 1792, "latent_dim": 768, "num_enc_layers": 4, "num_q": 5, "task_dim": 64},
    317: {"enc_dim": 4096, "mlp_dim": 4096, "latent_dim": 1376, "num_enc_layers": 5, "num_q": 8, "task_dim": 96},
}
"""Networks by their parameters in millions."""
LARGE_ACTION, FURTHER_ITERATIONS = 20, 2
"""From so many numbers in an action on, plans are searched for in so many iterations more."""


@dataclass(frozen=True, kw_only=True)
class TDMPC2Config(RunConfig):
    """TD-MPC2: how experience is gathered, what is learned from it and how plans are made."""

    steps: Annotated[int, Range(at_least=1, at_most=10**15), Alias("total_timesteps")] = 10_000_000
    """Agent steps to train for, over all ranks, in whole rounds of num_envs x n_steps."""
    num_envs: Annotated[int, Range(at_least=1, at_most=65_536), Alias("n_envs")] = 1
    """Environments, over all ranks."""
    n_steps: Annotated[int, Range(at_least=1, at_most=65_536)] = 100
    """Steps of each environment in a round, which is what is logged, counted and saved as one update."""
    seed_steps: OffOrCount = 0
    """Agent steps with random actions at the start, over all ranks; 0 = five episodes, 1000 at least."""
    pretrain_updates: OffOrCount = 0
    """Gradient updates when the random actions end; 0 = as many as belong to seed_steps."""
    updates_per_step: Annotated[float, Range(above=0, at_most=64)] = 1.0
    """Gradient updates for each agent step, over all ranks; the same number on every rank."""
    sync_freq: Annotated[int, Range(at_least=1, at_most=1024)] = 1
    """Gradient updates whose gradients are added up, averaged over all ranks and applied as one step."""
    batch_size: Count = 256
    """Sequences that a gradient update learns from, over all ranks; the same number from every lane."""
    buffer_size: Annotated[int, Range(at_least=1, at_most=10**10)] = 1_000_000
    """Agent steps that are remembered, over all ranks; the oldest make room."""

    model_size: int = 5
    """Parameters in millions: 1, 5, 19, 48 or 317; the next six fields change parts of it."""
    enc_dim: Width = 0
    """Width of the encoder; 0 = by model_size, as for the next fields."""
    num_enc_layers: Annotated[int, Range(at_least=0, at_most=64)] = 0
    """Layers of the encoder."""
    mlp_dim: Width = 0
    """Width of the other networks."""
    latent_dim: Width = 0
    """Numbers in a latent state; a multiple of simnorm_dim."""
    num_q: Annotated[int, Range(at_least=0, at_most=64)] = 0
    """Value functions."""
    task_dim: Annotated[int, Range(at_least=0, at_most=4096)] = 0
    """Numbers in the embedding of a task, where there are several."""
    simnorm_dim: Count = 8
    """Numbers of a latent state that add up to one."""
    dropout: Annotated[float, Range(at_least=0, below=1)] = 0.01
    """Share of the values' first hidden features that is left out in learning."""
    num_bins: Annotated[int, Range(at_least=2, at_most=4096)] = 101
    """Classes in which rewards and values are predicted."""
    vmin: float = -10.0
    """Lowest class, in logarithms."""
    vmax: float = 10.0
    """Highest class, in logarithms."""
    log_std_min: float = -10.0
    """Least logarithm of the policy prior's deviation."""
    log_std_max: float = 2.0
    """Largest logarithm of the policy prior's deviation."""

    mpc: bool = True
    """Plan; otherwise the policy prior acts by itself."""
    horizon: Annotated[int, Range(at_least=1, at_most=64)] = 3
    """Steps that are foreseen, in plans and in learning."""
    iterations: Annotated[int, Range(at_least=1, at_most=64)] = 6
    """Rounds of sampling in a plan; two more where an action has 20 numbers or more."""
    num_samples: Annotated[int, Range(at_least=1, at_most=65_536)] = 512
    """Action sequences that are tried in each."""
    num_elites: Annotated[int, Range(at_least=1, at_most=65_536)] = 64
    """The best of them, from which the next are sampled."""
    num_pi_trajs: Annotated[int, Range(at_least=0, at_most=65_536)] = 24
    """Those that the policy prior proposes."""
    min_std: Positive = 0.05
    """Least deviation of sampled actions."""
    max_std: Positive = 2.0
    """Largest deviation of sampled actions, and the first."""
    temperature: Positive = 0.5
    """How much better sequences count more."""

    lr: Annotated[Rate, Alias("learning_rate")] = 3e-4
    """Adam's step size."""
    enc_lr_scale: Positive = 0.3
    """What the encoder's step size is multiplied with."""
    grad_clip_norm: Positive = 20.0
    """Longest gradient, of the world model and of the policy prior each; a longer one is shortened to this."""
    tau: Rate = 0.01
    """Share of the way that the target and the values' scale follow at every step of the optimiser."""
    rho: Fraction = 0.5
    """What each further step into the future counts less in the losses."""
    consistency_coef: Weight = 20.0
    """Weight of foreseeing latent states."""
    reward_coef: Weight = 0.1
    """Weight of foreseeing rewards."""
    value_coef: Weight = 0.1
    """Weight of foreseeing values."""
    termination_coef: Weight = 1.0
    """Weight of foreseeing that an episode ends."""
    entropy_coef: Weight = 1e-4
    """Weight of the policy prior's entropy."""
    discount_denom: Positive = 5.0
    """Part of an episode that the discount reaches over: 1 - 5 / its steps."""
    discount_min: Fraction = 0.95
    """Least discount."""
    discount_max: Fraction = 0.995
    """Largest discount."""

    length_field: ClassVar[str] = "steps"
    per_rank_fields: ClassVar[tuple[str, ...]] = ("num_envs", "batch_size", "buffer_size")
    learning_rate_fields: ClassVar[tuple[str, ...]] = ("lr",)

    def size(self, part: str) -> int:
        """One of the networks' sizes: as it was given, else by model_size."""
        return getattr(self, part) or MODEL_SIZES[self.model_size][part]

    def discount_of(self, episode_length: int) -> float:
        """How much the next step's value counts where an episode has so many steps."""
        part = episode_length / self.discount_denom
        return min(max((part - 1.0) / part, self.discount_min), self.discount_max)

    def iterations_for(self, action: int) -> int:
        """Rounds of sampling for actions of so many numbers."""
        return self.iterations + (FURTHER_ITERATIONS if action >= LARGE_ACTION else 0)

    def random_steps(self, episode_length: int) -> int:
        """Agent steps with random actions, over all ranks."""
        return self.seed_steps or max(1000, 5 * episode_length)

    @property
    def offline(self) -> bool:
        """Whether a run learns from data alone; then a step is a gradient update."""
        return False

    @property
    def stride(self) -> int:
        """Steps that are made at once, over all ranks."""
        return 1 if self.offline else self.num_envs

    def updates_after(self, steps: int, episode_length: int) -> int:
        """Gradient updates that are due after so many agent steps over all ranks: the ratio that the run promises."""
        if self.offline:
            return steps + 1
        start = self.random_steps(episode_length)
        if steps < start:
            return 0
        first = self.pretrain_updates or int(start * self.updates_per_step)
        return first + int((steps - start) * self.updates_per_step)

    def lane_units(self) -> int:
        """Count the environments, which is what the lanes split; data can be split as one likes."""
        return 0 if self.offline else self.num_envs

    def for_world(self, size: int) -> Self:
        """Work out weak scaling: each rank's environments and batch stay what they are, and so do its updates."""
        effective = super().for_world(size)
        if self.scaling == "strong":
            return effective
        return replace(effective, updates_per_step=self.updates_per_step / size)

    @property
    def round_size(self) -> int:
        """Agent steps of one round, over all ranks."""
        return self.stride * self.n_steps

    def changes_since(self, before: Self) -> dict[str, tuple[Any, Any]]:
        """List what makes this another experiment; a longer run is none, unless it has room for more to remember."""
        longer = {} if self.memory_rows == before.memory_rows else {"steps": (before.steps, self.steps)}
        return super().changes_since(before) | longer

    @property
    def memory_rows(self) -> int:
        """Steps of each environment that are remembered: no more than the run has."""
        return min(self.buffer_size, self.steps + self.num_envs) // self.num_envs

    def work(self, shared: Callable[[int], str]) -> list[tuple[str, str]]:
        """Environments, memory, batch and the ratio of updates, and who holds how much of them."""
        rounds = self.steps // self.round_size
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
        """See that lanes, memory, networks and plans fit together."""
        super().validate()
        if self.model_size not in MODEL_SIZES:
            nearest = min(MODEL_SIZES, key=lambda size: abs(size - self.model_size))
            raise UserError(
                f"model_size {self.model_size}: no such size; the nearest is {nearest}; "
                f"allowed: {', '.join(map(str, MODEL_SIZES))}"
            )
        lanes = self.effective_lanes
        for name in ("batch_size",) if self.offline else ("num_envs", "batch_size"):
            count = getattr(self, name)
            if count % lanes:
                near = nearest_to_split(count, lanes, automatic=name == "num_envs" and not self.lanes)
                raise UserError(f"{name} {count} is no multiple of the run's {lanes} lanes; nearest: {near}")
        self._validate_memory()
        self._validate_search()
        updates = self.steps if self.offline else self.pretrain_updates + int(self.steps * self.updates_per_step)
        self.refuse_repetition({"steps of each environment": self.steps // self.stride, "gradient updates": updates})

    def _validate_memory(self) -> None:
        if self.offline:
            if self.steps < self.n_steps:
                raise UserError(
                    f"steps {self.steps} is less than one round's n_steps = {self.n_steps}; raise it or lower that"
                )
            return
        needed = 2 * self.horizon * self.num_envs
        if self.memory_rows < 2 * self.horizon:
            raise UserError(
                f"buffer_size {self.buffer_size} and steps {self.steps} must be {needed} at least: twice the horizon "
                f"of {self.horizon} for each of {self.num_envs} environments"
            )
        if self.steps < self.round_size:
            raise UserError(
                f"steps {self.steps} is less than one round's num_envs x n_steps = "
                f"{self.num_envs} x {self.n_steps} = {self.round_size}; raise it, or lower --num-envs or --n-steps"
            )
        if 0 < self.seed_steps < self.horizon * self.num_envs:
            raise UserError(
                f"seed_steps {self.seed_steps} is less than horizon x num_envs = {self.horizon} x {self.num_envs} = "
                f"{self.horizon * self.num_envs}: nothing could be learned from so few; raise it"
            )

    def _validate_search(self) -> None:
        for less, more in (
            ("num_elites", "num_samples"),
            ("num_pi_trajs", "num_samples"),
            ("min_std", "max_std"),
            ("vmin", "vmax"),
            ("log_std_min", "log_std_max"),
            ("discount_min", "discount_max"),
        ):
            if getattr(self, less) > getattr(self, more):
                raise UserError(f"{less} {getattr(self, less):g} is more than {more} {getattr(self, more):g}; lower it")
        if self.vmin == self.vmax:
            raise UserError(f"vmin and vmax are both {self.vmin:g}: there is nothing between them; raise vmax")
        if self.size("latent_dim") % self.simnorm_dim:
            raise UserError(
                f"latent_dim {self.size('latent_dim')} is no multiple of simnorm_dim {self.simnorm_dim}; change one"
            )
