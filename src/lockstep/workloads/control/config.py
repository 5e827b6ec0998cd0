"""What can be set about continuous control. Nothing here needs torch or a simulator."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, lcm
from typing import Annotated, ClassVar, Literal

from lockstep.algorithms.tdmpc2.config import TDMPC2Config
from lockstep.config.fields import Alias, OffOrCount, Range, Spelling, Steps
from lockstep.config.run_config import DEFAULT_LANES
from lockstep.errors import UserError
from lockstep.workloads.control import names


@dataclass(frozen=True, kw_only=True)
class ControlConfig(TDMPC2Config):
    """Continuous control: the task and its environments."""

    task: str = "dog-run"
    """Task of DeepMind Control (walker-walk), a Gymnasium environment (Pendulum-v1), mw-NAME, or mt30 or mt80."""
    episode_length: Annotated[int, Range(at_least=0, at_most=1_000_000)] = 0
    """Agent steps after which an episode is cut; 0 = the task's own."""
    episodic: bool | None = None
    """Whether the world model foresees that an episode ends by the rules; none = where the task can."""
    env_workers: Annotated[int, Range(at_least=0, at_most=1024)] = 0
    """Processes that hold the environments of a rank; 0 = as many as the rank has threads, 1 = the rank itself."""
    data_dir: str = ""
    """Directory of episode files to learn from instead of acting; then a step is a gradient update. None = act."""
    checkpoint: str = ""
    """Run, directory, .safetensors or official tdmpc2 .pt whose weights to begin with; none = new ones."""

    lanes: Annotated[int, Range(at_least=0, at_most=4096)] = 0
    """Units of data-parallel work; 0 = 8, or num_envs where 1, 2 or 4; task sets: up to 8 dividing envs and batch."""
    eval_every: Annotated[Steps, Alias("eval_freq")] = 50_000
    """Agent steps over all ranks between evaluations; 0 = never."""
    check_every: OffOrCount = 10
    """Rounds between comparisons of the weights' hash over all ranks; 0 = only at checkpoints."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    """Arithmetic of the networks; fp32 has TF32 matrix products on a GPU in sync fast."""
    compile: Annotated[Literal["auto", "none", "default"], Spelling("true", "auto"), Spelling("false", "none")] = "auto"
    """Use torch.compile: auto = on a GPU with sync fast where kernels can be built, none = never, default = always."""
    wandb: Annotated[bool, Alias("enable_wandb")] = False
    """Also log to Weights & Biases."""

    path_fields: ClassVar[tuple[str, ...]] = ("data_dir",)
    headline: ClassVar[tuple[tuple[str, str, str], ...]] = (
        ("rollout/episodes", "E:", ",.0f"),
        ("rollout/return_mean", "R:", ".1f"),
        ("control/success_mean", "S:", ".2f"),
        ("elapsed", "T:", ""),
        ("eval/return_mean", "eval R:", ".1f"),
    )
    told_elsewhere: ClassVar[Mapping[str, str]] = {
        **TDMPC2Config.told_elsewhere,
        "world_size": "where it runs is told to the command, as --gpus N or --ranks N",
        **dict.fromkeys(
            ("master_addr", "master_port"), "it is not needed on one machine; several meet at --rdzv-endpoint HOST:PORT"
        ),
        "save_csv": "the evaluations of a run are lines of its metrics.jsonl",
        "save_agent": "a run always keeps its weights: `final`, and `best` where it is evaluated",
        "exp_name": "a run is named by --run-name NAME",
        "save_video": "a finished run is filmed by `lockstep play RUN --video FILE`",
        "wandb_silent": "what W&B says itself is hushed by its own variable, WANDB_SILENT=true",
    }
    only_values: ClassVar[Mapping[str, str]] = {
        "obs": "state",
        "num_channels": "32",  # of pictures, which are not looked at
        "master_addr": "localhost",
        "save_csv": "true",
        "save_agent": "true",
        "save_video": "false",
        "exp_name": "default",
        "wandb_silent": "false",
    }

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, one unless it is a task set."""
        return names.tasks_of(self.task)

    @property
    def offline(self) -> bool:
        """Whether a run learns from a directory of episodes alone."""
        return bool(self.data_dir)

    @property
    def acts_in_several(self) -> bool:
        """Whether a run has environments of more than one task."""
        return len(self.tasks) > 1 and not self.offline

    @property
    def effective_lanes(self) -> int:
        """The number of lanes; a task set decides how many environments there are, so the lanes follow from them."""
        if self.lanes or not self.acts_in_several:
            return super().effective_lanes
        common = gcd(self.num_envs, self.batch_size)
        return max(count for count in range(1, DEFAULT_LANES + 1) if common % count == 0)

    def size(self, part: str) -> int:
        """One of the networks' sizes; those of the public checkpoints for several tasks are not quite the table's."""
        if part == "latent_dim" and not self.latent_dim and (self.task, self.model_size) == ("mt30", 19):
            return 512
        if part == "task_dim" and not self.task_dim and self.task == "mt80":
            return 96
        return super().size(part)

    def validate(self) -> None:
        """See that there is such a task, and that what is asked for goes together with it."""
        several = len(self.tasks) > 1
        if self.lanes and self.acts_in_several and self.num_envs % self.lanes:
            raise UserError(
                f"num_envs {self.num_envs}: {self.task} on {self.lanes} lanes needs a multiple of "
                f"{lcm(len(self.tasks), self.lanes)}; set --num-envs so, or leave --lanes out"
            )
        super().validate()
        if not several and self.task_dim:
            raise UserError(f"task_dim {self.task_dim}: {self.task} is one task and needs no embedding; leave it out")
        if several and self.episodic:
            raise UserError(f"episodic true: the tasks of {self.task} never end by the rules; leave it out")
