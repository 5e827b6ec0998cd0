"""What can be set about continuous control. Nothing here needs torch or a simulator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from lockstep.algorithms.tdmpc2.config import TDMPC2Config
from lockstep.core.config.fields import Alias, OffOrCount, Range, Spelling, Steps
from lockstep.core.errors import UserError
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

    eval_every: Annotated[Steps, Alias("eval_freq")] = 50_000
    """Agent steps over all ranks between evaluations; 0 = never."""
    check_every: OffOrCount = 10
    """Rounds between comparisons of the weights' hash over all ranks; 0 = only at checkpoints."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    """Arithmetic of the networks; fp32 has TF32 matrix products on a GPU in sync fast."""
    compile: Annotated[Literal["auto", "none", "default"], Spelling("true", "auto"), Spelling("false", "none")] = "auto"
    """Whether torch.compile is used: auto = on a GPU with sync fast, none = never, default = always."""
    wandb: Annotated[bool, Alias("enable_wandb")] = False
    """Also log to Weights & Biases."""

    headline: ClassVar[tuple[tuple[str, str, str], ...]] = (
        ("rollout/episodes", "E:", ",.0f"),
        ("rollout/return_mean", "R:", ".1f"),
        ("control/success_mean", "S:", ".2f"),
        ("elapsed", "T:", ""),
        ("eval/return_mean", "eval R:", ".1f"),
    )
    only_values: ClassVar[Mapping[str, str]] = {"obs": "state", "master_addr": "localhost"}

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, one unless it is a task set."""
        return names.tasks_of(self.task)

    @property
    def offline(self) -> bool:
        """Whether a run learns from a directory of episodes alone."""
        return bool(self.data_dir)

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
        super().validate()
        if not several and self.task_dim:
            raise UserError(f"task_dim {self.task_dim}: {self.task} is one task and needs no embedding; leave it out")
        if several and self.episodic:
            raise UserError(f"episodic true: the tasks of {self.task} never end by the rules; leave it out")
