"""Environments from outside: Gymnasium's by id, and anybody's class or function."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from lockstep.config.config import Preset, WorkloadSettings, preset
from lockstep.workloads.capabilities import PlayRequest, Translation
from lockstep.workloads.gym.settings import GymConfig, GymSettings
from lockstep.workloads.workload import Workload

if TYPE_CHECKING:
    from lockstep.distributed.world import World
    from lockstep.reporting.evaluation import Evaluation
    from lockstep.reporting.film import Scene
    from lockstep.rl.env_check import Finding
    from lockstep.rl.problem import EnvProblem, TeamProblem

_BASE = preset(
    "Train on this machine with settings that suit most environments.",
    n_envs=16,
    n_steps=128,
    batch_size=256,
    n_epochs=10,
    ent_coef=0.0,
    total_timesteps=1_000_000,
    checkpoint_every=100_000,
    eval_every=50_000,
    eval_episodes=20,
)


class Gym(Workload):
    """Any environment of Gymnasium, PettingZoo or tensors, from outside this package."""

    name = "gym"
    summary = "Your environment: Gymnasium, PettingZoo or tensors"
    settings: ClassVar[type[WorkloadSettings]] = GymSettings
    algorithms = ("ppo", "tdmpc2", "maddpg", "ddpg")
    presets: ClassVar[Mapping[str, Preset]] = {
        "debug": preset(
            "A few seconds of training: for tests and first steps.",
            n_envs=8,
            n_steps=32,
            batch_size=64,
            n_epochs=2,
            total_timesteps=20 * 8 * 32,
            env_workers=1,
            checkpoint_every=10 * 8 * 32,
            eval_every=10 * 8 * 32,
            eval_episodes=4,
        ),
        "base": _BASE,
    }
    baselines = ("random",)
    preloads = ("lockstep.algorithms.ppo.learner", "lockstep.workloads.gym.problem")

    def __init__(self, env_id: str = "") -> None:
        """`env_id`: the environment, if it is not chosen by a setting."""
        if env_id:
            self.defaults = {**type(self).defaults, "env_id": env_id}  # type: ignore[misc]

    def fit(self, config: GymConfig, explicit: Collection[str]) -> tuple[GymConfig, list[str]]:
        """Check that the environment can be made and used, and find out how it resumes."""
        from lockstep.workloads.gym.fitting import fitted

        return fitted(config, explicit)

    def problem(self, config: GymConfig, world: "World") -> "EnvProblem | TeamProblem":
        """Environments on this rank's host or device. Called by every rank."""
        from lockstep.workloads.gym.problem import gym_problem

        return gym_problem(config.workload, world.device)

    def evaluate_baseline(self, name: str, config: GymConfig, world: "World", episodes: int, seed: int) -> "Evaluation":
        """Evaluate random actions. Called by every rank."""
        from lockstep.workloads.gym.problem import evaluate_random

        return evaluate_random(config.workload, world, episodes, seed)

    def check_itself(self, config: GymConfig, steps: int) -> "Iterator[Finding]":
        """Compare a Gymnasium environment with its own spaces; others are checked by what training relies on."""
        from lockstep.workloads.gym.kinds import kind_of
        from lockstep.workloads.gym.single_check import check_spaces

        return check_spaces(config.workload, steps) if kind_of(config.workload) == "single" else iter(())

    def translation(self, config: GymConfig) -> "Translation | None":
        """Observations and actions of Gymnasium's environments; tensor environments need none."""
        from lockstep.workloads.gym.kinds import kind_of
        from lockstep.workloads.gym.single_facts import facts_of
        from lockstep.workloads.gym.translation import Translation

        return Translation(facts_of(config.workload)) if kind_of(config.workload) == "single" else None

    def scenes(self, request: PlayRequest) -> "Iterator[Scene]":
        """Play episode after episode, yielding a scene per step."""
        from lockstep.workloads.gym.watch import scenes

        return scenes(request)
