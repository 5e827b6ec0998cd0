"""Settings of continuous control. Nothing here needs torch or a simulator."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, lcm
from typing import Annotated, ClassVar, Literal

from lockstep.algorithms.tdmpc2.model.sizes import MODEL_SIZES, OtherSizes
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings
from lockstep.algorithms.tdmpc2.world_model import WorldModelSettings
from lockstep.config.config import AlgorithmSettings, AnyConfig, Config, Headline, NetworkSettings, WorkloadSettings
from lockstep.config.fields import Range
from lockstep.config.run_settings import DEFAULT_LANES
from lockstep.errors import UserError
from lockstep.workloads.control import names

PUBLIC_SIZES: Mapping[str, OtherSizes] = {
    "mt30": {19: {"latent_dim": 512}},
    "mt80": {size: {"task_dim": 96} for size in MODEL_SIZES},
}
"""Sizes in which the public multi-task checkpoints deviate from those of their model_size."""


@dataclass(frozen=True, kw_only=True)
class ControlSettings(WorkloadSettings):
    """Continuous control: the task and its environments."""

    task: str = "dog-run"
    """Task of DeepMind Control (walker-walk), a Gymnasium environment (Pendulum-v1), mw-NAME, or mt30 or mt80."""
    episode_length: Annotated[int, Range(at_least=0, at_most=1_000_000)] = 0
    """Agent steps after which an episode is truncated; 0 = the task's own limit."""
    obs: Literal["state", "rgb"] = "state"
    """What is observed: the body's numbers, or three frames of 64 x 64 pixels (DeepMind Control's tasks only)."""
    renderer: Literal["mujoco", "rays"] = "mujoco"
    """What draws frames to observe: mujoco (needs OpenGL) or rays (on the CPU: no OpenGL, shadows or sites)."""
    env_workers: Annotated[int, Range(at_least=0, at_most=1024)] = 0
    """Worker processes for a rank's environments; 0 = one per thread of the rank, 1 = in the rank's own process."""

    headline: ClassVar[Headline] = (
        ("rollout/episodes", "E:", ",.0f"),
        ("rollout/return_mean", "R:", ".1f"),
        ("control/success_mean", "S:", ".2f"),
        ("elapsed", "T:", ""),
        ("eval/return_mean", "eval R:", ".1f"),
    )
    # Keys of the official program's configurations that are accepted with the one value that Lockstep supports.
    only_values: ClassVar[Mapping[str, str]] = {
        "master_addr": "localhost",
        "save_csv": "true",
        "save_agent": "true",
        "save_video": "false",
        "exp_name": "default",
        "wandb_silent": "false",
    }

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks: one, or several for a task set."""
        return names.tasks_of(self.task)

    @property
    def other_sizes(self) -> OtherSizes:
        """Network sizes that override those of model_size."""
        return PUBLIC_SIZES.get(self.task, {})

    @property
    def images(self) -> bool:
        """Whether observations are images."""
        return self.obs == "rgb"

    def validate(self) -> None:
        """Check that the task exists."""
        names.tasks_of(self.task)
        if self.images and self.task not in names.SUITE:
            raise UserError(
                f"obs rgb: task {self.task} is observed by its numbers only; choose a single task of DeepMind Control, "
                "or obs state"
            )

    def acts_in_several(self, algorithm: AlgorithmSettings) -> bool:
        """Whether a run steps environments of several tasks; an offline run steps none."""
        return len(self.tasks) > 1 and isinstance(algorithm, TDMPC2Settings) and not algorithm.offline

    def automatic_lanes(self, config: AnyConfig) -> int | None:
        """The most lanes, up to 8, that divide a task set's environments, whose number follows from its tasks."""
        algorithm = config.algorithm
        if not self.acts_in_several(algorithm):
            return None
        assert isinstance(algorithm, TDMPC2Settings)
        # Lanes must divide both the environments and the batch.
        common = gcd(algorithm.num_envs, algorithm.batch_size)
        return max(count for count in range(1, DEFAULT_LANES + 1) if common % count == 0)

    def check(self, config: AnyConfig) -> None:
        """Check that algorithm and network settings suit the task."""
        algorithm, network, several = config.algorithm, config.network, len(self.tasks) > 1
        if several and not isinstance(algorithm, TDMPC2Settings):
            raise UserError(
                f"task {self.task}: {config.run.algorithm} learns one task at a time; choose one, or --algorithm tdmpc2"
            )
        if isinstance(algorithm, TDMPC2Settings) and several:
            self._check_lanes(algorithm, config.run.lanes)
            if algorithm.episodic:
                raise UserError(f"episodic true: the tasks of {self.task} never terminate; leave it out")
        if self.images:
            self._check_images(algorithm, config.run.algorithm)
        if isinstance(network, WorldModelSettings):
            network.check_latent(self.other_sizes, self.images)
            if not several and network.task_dim:
                raise UserError(
                    f"task_dim {network.task_dim}: {self.task} is one task and needs no embedding; leave it out"
                )

    def _check_images(self, algorithm: AlgorithmSettings, name: str) -> None:
        if not isinstance(algorithm, TDMPC2Settings):
            raise UserError(f"obs rgb: {name} has no encoder for images here; choose --algorithm tdmpc2 or obs state")
        if algorithm.offline:
            raise UserError(
                "obs rgb: recorded episodes hold numbers, not images; leave --data-dir out or use obs state"
            )
        # As in `TDMPC2Settings.check`, with the frames that are read from the rows before a sequence.
        rows = 2 * (algorithm.horizon + names.FRAMES - 1)
        if algorithm.memory_rows < rows:
            raise UserError(
                f"buffer_size {algorithm.buffer_size} and steps {algorithm.steps} must be at least "
                f"{rows * algorithm.num_envs} for sequences of images; raise them"
            )

    def _check_lanes(self, algorithm: TDMPC2Settings, lanes: int) -> None:
        # num_envs must be a multiple of the tasks and of the lanes: the hint gives the smallest such number.
        if lanes and self.acts_in_several(algorithm) and algorithm.num_envs % lanes:
            raise UserError(
                f"num_envs {algorithm.num_envs}: {self.task} on {lanes} lanes needs a multiple of "
                f"{lcm(len(self.tasks), lanes)}; change --num-envs, or leave --lanes out"
            )


ControlConfig = Config[AlgorithmSettings, ControlSettings, NetworkSettings]
