"""Continuous control: its presets and capabilities."""

from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings
from lockstep.config.config import NetworkSettings, Preset, WorkloadSettings, preset
from lockstep.errors import UserError
from lockstep.rl.network_settings import MLPSettings
from lockstep.workloads.capabilities import Acting, PlayRequest
from lockstep.workloads.control import names
from lockstep.workloads.control.settings import ControlConfig, ControlSettings
from lockstep.workloads.workload import Workload

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.distributed.world import World
    from lockstep.reporting.evaluation import Evaluation
    from lockstep.reporting.film import Scene
    from lockstep.rl.problem import EnvProblem

_GYMNASIUM_CHOICES = {"discount_max": 0.99, "rho": 0.7}
"""The official TD-MPC2's choices for tasks whose episodes can terminate."""


class Control(Workload):
    """Tasks of DeepMind Control, Gymnasium and Meta-World with continuous actions."""

    name = "control"
    summary = "Continuous control (DeepMind Control, Gymnasium), TD-MPC2"
    settings: ClassVar[type[WorkloadSettings]] = ControlSettings
    algorithms = ("tdmpc2", "ppo")
    networks: ClassVar[Mapping[str, Mapping[str, type[NetworkSettings]]]] = {"ppo": {"mlp": MLPSettings}}
    presets: ClassVar[Mapping[str, Preset]] = {
        "debug": preset(
            "A few seconds of training with tiny networks and plans: for tests and first steps.",
            # Gymnasium is a dependency; DeepMind Control comes with the extra `control` only.
            task="cartpole-balance" if find_spec("dm_control") else "Pendulum-v1",
            episode_length=20,
            num_envs=4,
            n_steps=10,
            seed_steps=40,
            pretrain_updates=2,
            updates_per_step=0.25,
            batch_size=16,
            buffer_size=2000,
            steps=10 * 40,
            enc_dim=16,
            mlp_dim=32,
            latent_dim=16,
            num_q=3,
            iterations=2,
            num_samples=16,
            num_elites=4,
            num_pi_trajs=4,
            env_workers=1,
            num_channels=4,
            renderer="rays",
            checkpoint_every=5 * 40,
            eval_every=5 * 40,
            eval_episodes=4,
        ),
        "small": preset(
            "Train on a laptop: balance a pole with tiny networks; the policy acts without planning (mpc=true plans).",
            task="cartpole-balance",
            model_size=1,
            enc_dim=64,
            mlp_dim=128,
            latent_dim=64,
            num_q=2,
            lr=1e-3,
            steps=16_000,
            seed_steps=1_000,
            num_envs=4,
            n_steps=50,
            batch_size=128,
            dropout=0.0,
            buffer_size=100_000,
            mpc=False,
            iterations=3,
            num_samples=64,
            num_elites=16,
            num_pi_trajs=8,
            checkpoint_every=5_000,
            eval_every=4_000,
            eval_episodes=4,
        ),
        "base": preset(
            "Train on a GPU as the official program does: one environment, one update a step, 5 million parameters.",
            task="walker-walk",
            steps=50_000,
            eval_every=10_000,
            checkpoint_every=25_000,
        ),
        "guide": preset(
            "Train with the guide's numbers: dog-run for ten million steps; add --scaling weak for sizes per rank.",
            task="dog-run",
            steps=10_000_000,
            checkpoint_every=250_000,
        ),
    }
    # fp32, as in the official program, whose results are the reference.
    defaults: ClassVar[Mapping[str, Any]] = {"eval_every": 50_000, "check_every": 10, "precision": "fp32"}
    baselines = ("random", "zero")
    # Imported once by the fork server, before it forks the ranks.
    preloads = ("lockstep.algorithms.tdmpc2.learner", "lockstep.workloads.control.problem")

    def problem(self, config: ControlConfig, world: "World") -> "EnvProblem":
        """Tasks simulated on this rank's host. Called by every rank."""
        from lockstep.workloads.control.problem import control_problem

        return control_problem(config.workload)

    def fit(self, config: ControlConfig, explicit: Collection[str]) -> tuple[ControlConfig, list[str]]:
        """Check that the task's package and data exist; adapt TD-MPC2's settings to the task."""
        task = config.workload.task
        # Before any rank starts, so that a missing package costs no launch.
        names.check_installed(task)
        if names.gymnasium_id(task):
            _check_gymnasium(task)
        algorithm = config.algorithm
        if not isinstance(algorithm, TDMPC2Settings):
            return config, []
        config, lines = _for_tdmpc2(config, algorithm, explicit)
        if config.workload.images:
            lines.append(_frames_kept(algorithm))
        if algorithm.offline:
            from lockstep.workloads.control.problem import check_recorded

            lines.append(check_recorded(config, algorithm))
        return config, lines

    def read_foreign(self, config: ControlConfig, path: Path) -> "Mapping[str, Tensor]":
        """Weights of another program: a checkpoint of the official TD-MPC2, or a state dict with our names."""
        from lockstep.workloads.control.problem import foreign_weights

        return foreign_weights(config, path)

    def evaluate_baseline(
        self, name: str, config: ControlConfig, world: "World", episodes: int, seed: int
    ) -> "Evaluation":
        """Evaluate one of `baselines`. Called by every rank."""
        from lockstep.workloads.control.baselines import evaluate_baseline

        return evaluate_baseline(name, config.workload, world, episodes, seed)

    def scenes(self, request: PlayRequest) -> "Iterator[Scene]":
        """Play episode after episode, of all tasks or only one, yielding a scene per step."""
        from lockstep.workloads.control.watch import scenes

        return scenes(request.config.workload, request.act, request.seed, request.pictures, request.only)

    def check_task(self, config: ControlConfig, task: str) -> None:
        """Raise UserError if the configuration has no such task."""
        names.number_of(task, config.workload.tasks)

    def record_episodes(
        self, config: ControlConfig, act: Acting, episodes: int, seed: int, folder: Path
    ) -> tuple[int, int]:
        """Play episodes and write them to a directory; returns how many episodes and steps."""
        from lockstep.workloads.control.recording import record_episodes

        return record_episodes(config.workload, act, episodes, seed, folder)

    def convert_episodes(self, config: ControlConfig, source: Path, folder: Path) -> tuple[int, int]:
        """Convert the public chunks (.pt) of a task set to episode files; returns how many episodes and steps."""
        from lockstep.workloads.control.convert import convert_chunks

        return convert_chunks(config.workload, source, folder)

    def more_results(
        self, config: ControlConfig, results: dict[str, Any], trained_on: Mapping[str, str] | None
    ) -> dict[str, Any]:
        """Per-task results of an evaluation, if there are several tasks or one with a goal."""
        from lockstep.workloads.control.report import per_task

        return per_task(config.workload.tasks, results)


def _frames_kept(algorithm: TDMPC2Settings) -> str:
    """The line of the plan that says how much memory frames take."""
    # A row has the newest frame before and after its step; older ones are in the rows before it.
    each = 2 * 3 * names.SIDE * names.SIDE
    total = algorithm.memory_rows * algorithm.num_envs * each
    return f"frames       {each:,} bytes a step: {total / 2**30:.2f} GiB over all ranks, and in every checkpoint"


def _check_gymnasium(task: str) -> None:
    """Check that Gymnasium has the task and that control can use it. Imported here, as other tasks do not need it."""
    from lockstep.workloads.control.gymnasium_tasks import facts

    facts(task)


def _for_tdmpc2(
    config: ControlConfig, algorithm: TDMPC2Settings, explicit: Collection[str]
) -> tuple[ControlConfig, list[str]]:
    """Adapt settings the user left open to task sets and Gymnasium's tasks; also returns a line for each change."""
    if config.workload.acts_in_several(algorithm):
        return _with_every_task(config, algorithm.num_envs, "num_envs" in explicit)
    if not names.gymnasium_id(config.workload.task):
        return config, []
    chosen = {name: value for name, value in _GYMNASIUM_CHOICES.items() if name not in explicit}
    lines = [f"{name} {value:g}: the default for Gymnasium tasks" for name, value in chosen.items()]
    return config.replace(**chosen), lines


def _with_every_task(config: ControlConfig, envs: int, given: bool) -> tuple[ControlConfig, list[str]]:
    """Default a task set to one environment per task; UserError if the user's number does not divide evenly."""
    task, count = config.workload.task, len(config.workload.tasks)
    if not given:
        return config.replace(num_envs=count), [f"num_envs {count}: one environment per task of {task}"]
    # An uneven number would train some tasks on more data than others.
    if envs % count:
        near = " or ".join(str(value) for value in (envs // count * count, -(-envs // count) * count) if value)
        raise UserError(f"num_envs {envs} must be a multiple of the {count} tasks of {task}; nearest: {near}")
    return config, []
