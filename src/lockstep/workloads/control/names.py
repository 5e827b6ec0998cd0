"""The names of the tasks and their sizes. Nothing here needs torch or a simulator."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from lockstep.config.fields import nearest
from lockstep.errors import UserError


@dataclass(frozen=True)
class TaskFacts:
    """Sizes and lengths of a run's tasks. The properties give the maximum, which a multi-task model is built for."""

    tasks: tuple[str, ...]
    """Names, in the order of the task numbers; one in a single-task run."""
    obs_dims: tuple[int, ...]
    action_dims: tuple[int, ...]
    episode_lengths: tuple[int, ...]
    """Agent steps after which an episode is truncated."""
    episodic: bool = False
    """Whether an episode can terminate before it is truncated."""
    renderer: str = ""
    """What draws the observations; empty = they are numbers, not images."""

    @property
    def obs_dim(self) -> int:
        """Size of an observation; shorter ones are zero-padded."""
        return max(self.obs_dims)

    @property
    def action_dim(self) -> int:
        """Size of an action; tasks with a smaller one ignore the rest."""
        return max(self.action_dims)

    @property
    def episode_length(self) -> int:
        """Agent steps of the longest episode."""
        return max(self.episode_lengths)

    @property
    def multitask(self) -> bool:
        """Whether there is more than one task."""
        return len(self.tasks) > 1

    @property
    def has_goals(self) -> bool:
        """Whether an episode of some task can succeed."""
        return any(task in MT50 or task in GYMNASIUM_GOALS for task in self.tasks)


FRAMES, SIDE = 3, 64
"""Frames of an image observation and pixels of their sides, as in the official TD-MPC2."""
IMAGE = (3 * FRAMES, SIDE, SIDE)
"""Shape of an image observation: red, green and blue of each frame."""
SUITE_LENGTH = 500
"""Agent steps of a DeepMind Control episode: 1000 control steps, two per action."""
# Listed here, so that a run can be checked and planned without starting a simulator.
STANDARD = {
    "acrobot-swingup": (6, 1),
    "cartpole-balance": (5, 1),
    "cartpole-balance-sparse": (5, 1),
    "cartpole-swingup": (5, 1),
    "cartpole-swingup-sparse": (5, 1),
    "cheetah-run": (17, 6),
    "cup-catch": (8, 2),
    "dog-run": (223, 38),
    "dog-stand": (223, 38),
    "dog-trot": (223, 38),
    "dog-walk": (223, 38),
    "finger-spin": (9, 2),
    "finger-turn-easy": (12, 2),
    "finger-turn-hard": (12, 2),
    "fish-swim": (24, 5),
    "hopper-hop": (15, 4),
    "hopper-stand": (15, 4),
    "humanoid-run": (67, 21),
    "humanoid-stand": (67, 21),
    "humanoid-walk": (67, 21),
    "pendulum-swingup": (3, 1),
    "quadruped-run": (78, 12),
    "quadruped-walk": (78, 12),
    "reacher-easy": (6, 2),
    "reacher-hard": (6, 2),
    "walker-run": (24, 6),
    "walker-stand": (24, 6),
    "walker-walk": (24, 6),
}
"""Tasks of DeepMind Control: (size of an observation, size of an action)."""
CUSTOM = {
    "walker-walk-backwards": (24, 6),
    "walker-run-backwards": (24, 6),
    "cheetah-run-backwards": (17, 6),
    "cheetah-run-front": (17, 6),
    "cheetah-run-back": (17, 6),
    "cheetah-jump": (17, 6),
    "hopper-hop-backwards": (15, 4),
    "reacher-three-easy": (8, 3),
    "reacher-three-hard": (8, 3),
    "cup-spin": (8, 2),
    "pendulum-spin": (3, 1),
}
"""Additional tasks on the same bodies; see custom_tasks.py."""
SUITE = STANDARD | CUSTOM

GYMNASIUM = {
    "mujoco-walker": "Walker2d-v5",
    "mujoco-halfcheetah": "HalfCheetah-v5",
    "bipedal-walker": "BipedalWalker-v3",
    "lunarlander-continuous": "LunarLander-v3",
}
"""Short names of Gymnasium environments; all others are named by their id, such as Pendulum-v1."""
GYMNASIUM_GOALS = {"lunarlander-continuous": 200.0}
"""Return above which an episode counts as solved, for tasks with an agreed threshold."""
# NAMESPACE/NAME-vN; the namespace is optional.
_GYMNASIUM_ID = re.compile(r"([\w.-]+/)?[\w.-]+-v\d+")

METAWORLD_PREFIX = "mw-"
METAWORLD_FACTS = (39, 4, 100)
"""Size of an observation, size of an action and agent steps of an episode, the same for every Meta-World task."""

MT30 = (
    *("walker-stand", "walker-walk", "walker-run", "cheetah-run", "reacher-easy", "reacher-hard", "acrobot-swingup"),
    *("pendulum-swingup", "cartpole-balance", "cartpole-balance-sparse", "cartpole-swingup"),
    *("cartpole-swingup-sparse", "cup-catch", "finger-spin", "finger-turn-easy", "finger-turn-hard", "fish-swim"),
    *("hopper-stand", "hopper-hop", *CUSTOM),
)
"""In the order of the public data, which refers to tasks by number: do not reorder."""
MT50 = tuple(
    METAWORLD_PREFIX + name
    for name in (
        *("assembly", "basketball", "button-press-topdown", "button-press-topdown-wall", "button-press"),
        *("button-press-wall", "coffee-button", "coffee-pull", "coffee-push", "dial-turn", "disassemble", "door-open"),
        *("door-close", "drawer-close", "drawer-open", "faucet-open", "faucet-close", "hammer", "handle-press-side"),
        *("handle-press", "handle-pull-side", "handle-pull", "lever-pull", "peg-insert-side", "peg-unplug-side"),
        *("pick-out-of-hole", "pick-place", "pick-place-wall", "plate-slide", "plate-slide-side"),
        *("plate-slide-back", "plate-slide-back-side", "push-back", "push", "push-wall", "reach", "reach-wall"),
        *("shelf-place", "soccer", "stick-push", "stick-pull", "sweep-into", "sweep", "window-open", "window-close"),
        *("bin-picking", "box-close", "door-lock", "door-unlock", "hand-insert"),
    )
)
# mt80 continues the numbers of mt30, as the public data does.
TASK_SETS = {"mt30": MT30, "mt80": MT30 + MT50}


def tasks_of(name: str) -> tuple[str, ...]:
    """The tasks a name stands for: one, or several for a task set; UserError if there is no such task."""
    if name in TASK_SETS:
        return TASK_SETS[name]
    if name in SUITE or name in GYMNASIUM or name in MT50 or _GYMNASIUM_ID.fullmatch(name):
        return (name,)
    raise UserError(
        f"task {name[:64]!r}: unknown; {_hint(name)}allowed: DeepMind Control tasks such as walker-walk, "
        f"Gymnasium ids such as Pendulum-v1, {METAWORLD_PREFIX}NAME for Meta-World, {' and '.join(TASK_SETS)}"
    )


def number_of(name: str, tasks: Sequence[str]) -> int:
    """The index of a task by name; UserError with the nearest names if it is not among them."""
    if name in tasks:
        return tasks.index(name)
    raise UserError(f"task {name[:64]!r}: not a task of this run; {_hint(name, tasks)}allowed: {', '.join(tasks)}")


def _hint(name: str, known: Sequence[str] = (*SUITE, *TASK_SETS, *GYMNASIUM, *MT50)) -> str:
    """Up to three names that the user may have meant."""
    # Common slips: capitals and underscores. Cut, as messages quote what the user typed.
    spelled = name[:64].lower().replace("_", "-")
    # Names that start like it first, then similar ones until there are three.
    near = [task for task in known if task == spelled or (len(spelled) > 2 and task.startswith(spelled))]
    while len(near) < 3 and (another := nearest(spelled, [task for task in known if task not in near])):
        near.append(another)
    return f"the nearest are {', '.join(near[:3])}; " if near else ""


def check_installed(name: str) -> None:
    """UserError if a task needs a package that is not installed. Imports none of them."""
    for task in tasks_of(name):
        if task in SUITE and find_spec("dm_control") is None:
            raise UserError(f"task {name}: needs dm_control; pip install 'lockstep-train[control]'")
        if task in MT50 and find_spec("metaworld") is None:
            raise UserError(f"task {name}: {task} needs metaworld; pip install 'lockstep-train[metaworld]'")


def gymnasium_id(task: str) -> str:
    """Gymnasium's id of a task; empty if it is not a Gymnasium task."""
    return GYMNASIUM.get(task, task if _GYMNASIUM_ID.fullmatch(task) else "")
