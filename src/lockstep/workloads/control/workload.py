"""Continuous control, learned by TD-MPC2: the presets, and what can be done with it."""

from collections.abc import Callable, Collection
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from lockstep.errors import UserError
from lockstep.workloads.control import names
from lockstep.workloads.control.config import ControlConfig

_GYMNASIUM_CHOICES = {"discount_max": 0.99, "rho": 0.7}
"""What the official program chooses where episodes end by the rules."""


def debug() -> ControlConfig:
    """A few seconds of training with tiny networks and plans: for tests and first steps."""
    return ControlConfig(
        # Gymnasium is always there; DeepMind Control where it was asked for.
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
        checkpoint_every=5 * 40,
        eval_every=5 * 40,
        eval_episodes=4,
    )


def small() -> ControlConfig:
    """Train on a laptop: tiny networks, and the policy acts by itself, to balance a pole; mpc=true plans."""
    return ControlConfig(
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
    )


def base() -> ControlConfig:
    """Train on a GPU as the official program does: one environment, one update a step, 5 million parameters."""
    return ControlConfig(task="walker-walk", steps=50_000, eval_every=10_000, checkpoint_every=25_000)


def guide() -> ControlConfig:
    """Train with the guide's numbers: dog-run for ten million steps; add --scaling weak for sizes per rank."""
    return ControlConfig(task="dog-run", steps=10_000_000, checkpoint_every=250_000)


summary = "Continuous control (DeepMind Control, Gymnasium), TD-MPC2"
config_class = ControlConfig
PRESETS: dict[str, Callable[[], ControlConfig]] = {preset.__name__: preset for preset in (debug, small, base, guide)}


def build(config: ControlConfig, world: Any) -> Any:
    """Build the learner for this configuration on this rank. Called by every rank."""
    from lockstep.workloads.control.build import build_learner

    return build_learner(config, world)


def fit(config: ControlConfig, explicit: Collection[str]) -> tuple[ControlConfig, list[str]]:
    """See that the task, its package, data and weights are there; choose what Gymnasium's tasks and task sets need."""
    names.check_installed(config.task)
    lines: list[str] = []
    if config.acts_in_several:
        config, lines = _with_every_task(config, "num_envs" in explicit)
    if names.gymnasium_id(config.task):
        _check_gymnasium(config.task)
        chosen = {name: value for name, value in _GYMNASIUM_CHOICES.items() if name not in explicit}
        config = replace(config, **chosen)  # type: ignore[arg-type]
        lines = [f"{name} {value:g}: as for all tasks of Gymnasium" for name, value in chosen.items()]
    if config.checkpoint or config.data_dir:
        from lockstep.workloads.control import build

        if config.checkpoint:
            build.stored_weights(config)
        if config.data_dir:
            lines.append(build.check_data(config))
    return config, lines


def _check_gymnasium(task: str) -> None:
    """See that Gymnasium has such a task, and that it can be used; imported here, as other tasks do not need it."""
    from lockstep.workloads.control.gymnasium_tasks import facts

    facts(task)


def _with_every_task(config: ControlConfig, given: bool) -> tuple[ControlConfig, list[str]]:
    """Give a task set one environment a task, where the user gave no number; UserError where that leaves some out."""
    count, envs = len(config.tasks), config.num_envs
    if not given:
        return replace(config, num_envs=count), [f"num_envs {count}: an environment for each task of {config.task}"]
    if envs % count:
        near = " or ".join(str(value) for value in (envs // count * count, -(-envs // count) * count) if value)
        raise UserError(f"num_envs {envs} is no multiple of the {count} tasks of {config.task}; nearest: {near}")
    return config, []


FOREIGN = ".pt"
"""What files of another program's weights end in."""


def read_foreign(config: ControlConfig, path: Any) -> Any:
    """The weights in a file of the official program, by the names that they have here."""
    from lockstep.workloads.control.build import fitting_weights

    return fitting_weights(config, path)


BASELINES = ("random", "zero")
"""Policies without a network that a trained one is compared with."""


def evaluate_baseline(name: str, config: ControlConfig, world: Any, episodes: int, seed: int) -> Any:
    """Evaluate one of BASELINES. Called by every rank."""
    from lockstep.workloads.control.baselines import evaluate_baseline as evaluate

    return evaluate(name, config, world, episodes, seed)


def scenes(config: ControlConfig, act: Any, seed: int, pictures: bool = True, only: str = "") -> Any:
    """Play one episode after another, of all tasks or only one, yielding what there is to see after every step."""
    from lockstep.workloads.control.watch import scenes as watch

    return watch(config, act, seed, pictures, only)


def record_episodes(config: ControlConfig, act: Any, episodes: int, seed: int, folder: Any) -> tuple[int, int]:
    """Play episodes and write them to a directory; returns how many episodes and steps they are."""
    from lockstep.workloads.control.recording import record_episodes as record

    return record(config, act, episodes, seed, folder)


def convert_episodes(config: ControlConfig, source: Any, folder: Any) -> tuple[int, int]:
    """Write the public chunks (.pt) of a task set as episode files; returns how many episodes and steps they are."""
    from lockstep.workloads.control.convert import convert_chunks

    return convert_chunks(config, source, folder)


def more_results(config: ControlConfig, results: dict[str, Any]) -> dict[str, Any]:
    """What an evaluation's results say about each task, where there are several or where a task has a goal."""
    from lockstep.workloads.control.report import per_task

    return per_task(config.tasks, results)
