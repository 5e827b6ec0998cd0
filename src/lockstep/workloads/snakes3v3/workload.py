"""3v3 Snakes, learned by DDPG: the presets, and what can be done with it."""

from collections.abc import Callable, Collection
from typing import Any

from lockstep.workloads.snakes3v3.config import SnakesConfig


def debug() -> SnakesConfig:
    """A few seconds of training with short games and small networks: for tests and first steps."""
    return SnakesConfig(
        episode_length=40,
        n_envs=16,
        n_steps=8,
        update_interval=4,
        batch_size=32,
        buffer_size=2048,
        hidden_size=32,
        total_timesteps=20 * 16 * 8,
        self_play=1,
        self_play_every=4,
        checkpoint_every=10 * 16 * 8,
        eval_every=10 * 16 * 8,
        eval_episodes=8,
    )


def small() -> SnakesConfig:
    """Train on a laptop: beats random within a minute, and greedy within a few, on two cores."""
    return SnakesConfig(
        n_envs=64,
        n_steps=200,
        update_interval=2,
        batch_size=256,
        buffer_size=100_000,
        hidden_size=128,
        a_lr=1e-3,
        c_lr=1e-3,
        lr_schedule="linear",
        opponent="greedy",
        self_play=1,
        self_play_every=200,
        total_timesteps=640_000,
        checkpoint_every=128_000,
        eval_every=64_000,
        eval_episodes=100,
    )


def base() -> SnakesConfig:
    """Train on a GPU, in minutes, against the strongest scripted team and a past self."""
    return SnakesConfig(
        n_envs=4096,
        n_steps=200,
        batch_size=8192,
        buffer_size=524_288,
        hidden_size=512,
        a_lr=5e-4,
        c_lr=5e-4,
        lr_schedule="linear",
        epsilon_speed=0.9999999,
        opponent="greedy",
        self_play=1,
        self_play_every=2000,
        total_timesteps=204_800_000,
        checkpoint_every=102_400_000,
        eval_every=10_240_000,
        eval_episodes=400,
    )


def guide() -> SnakesConfig:
    """Train as the guide does: its algorithm, observation, rewards, opponents and numbers, on eight boards."""
    return SnakesConfig(
        critic="vectors",
        remember="vector",
        twin_critics=False,
        n_step=1,
        observation="guide30",
        reward="guide",
        n_envs=8,
        n_steps=200,
        batch_size=128,
        buffer_size=100_000,
        tau=0.01,
        gamma=0.99,
        a_lr=3e-4,
        c_lr=3e-4,
        epsilon=0.5,
        epsilon_speed=0.9995,
        epsilon_min=0.0,
        death_penalty=0.0,
        total_timesteps=50_000 * 200,
        checkpoint_every=1000 * 200,
        eval_every=1000 * 200,
        eval_episodes=100,
    )


summary = "3v3 Snakes, multi-agent DDPG"
config_class = SnakesConfig
PRESETS: dict[str, Callable[[], SnakesConfig]] = {preset.__name__: preset for preset in (debug, small, base, guide)}
BASELINES = ("random", "level1", "level2", "level3", "level4", "greedy", "evasive")
"""Teams without a network, to play as and against."""
EXPORTS = ("submission",)
"""Forms for other programs: a folder for the competition's platform."""


def build(config: SnakesConfig, world: Any) -> Any:
    """Build the learner for this configuration on this rank. Called by every rank."""
    from lockstep.workloads.snakes3v3.build import build_learner

    return build_learner(config, world)


def fit(config: SnakesConfig, explicit: Collection[str]) -> tuple[SnakesConfig, list[str]]:
    """See that the weights to begin with are there and fit, before anything is started."""
    if config.load_model:
        from lockstep.workloads.snakes3v3.model import stored_weights

        stored_weights(config)
    return config, []


def narrator(config: SnakesConfig, world: Any) -> Any:
    """Make what tells the progress of a run in the guide's words."""
    from lockstep.workloads.snakes3v3.console import guide_lines

    return lambda step, metrics: guide_lines(step // config.episode_length, metrics)


def evaluate_baseline(name: str, config: SnakesConfig, world: Any, episodes: int, seed: int) -> Any:
    """Evaluate one of BASELINES against the configuration's eval_opponent. Called by every rank."""
    from lockstep.workloads.snakes3v3.build import evaluate_baseline as evaluate

    return evaluate(name, config, world, episodes, seed)


def contest(config: SnakesConfig, team: Any, against: Any, games: int, seed: int, world: Any) -> Any:
    """Play games between two contestants, half of them from each side."""
    from lockstep.workloads.snakes3v3.build import contest as play

    return play(config, team, against, games, seed, world)


def scenes(config: SnakesConfig, act: Any, seed: int) -> Any:
    """Play one game after another, yielding what there is to see after every step."""
    from lockstep.workloads.snakes3v3.watch import scenes as watch

    return watch(config, act, seed)


def write_log(config: SnakesConfig, act: Any, seed: int, path: Any) -> None:
    """Play the first game of a seed and write everything about it to a JSON file."""
    from lockstep.workloads.snakes3v3.watch import write_game

    write_game(config, act, seed, path)


def read_log(path: Any) -> Any:
    """Yield what there is to see of a game that was written to a JSON file."""
    from lockstep.workloads.snakes3v3.watch import logged_scenes

    return logged_scenes(path)


def export(form: str, config: SnakesConfig, weights: Any, path: Any) -> None:
    """Write a trained team as one of EXPORTS."""
    from lockstep.workloads.snakes3v3.build import export_team

    export_team(config, weights, path)
