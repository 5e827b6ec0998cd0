"""Options trading, learned by recurrent PPO: the presets, and what can be done with it."""

from collections.abc import Callable
from typing import Any

from lockstep.workloads.trading.config import TradingConfig


def debug() -> TradingConfig:
    """A few seconds of training with a small network: for tests and first steps."""
    return TradingConfig(
        episode_length=20,
        n_envs=16,
        n_steps=8,
        sequence_length=4,
        batch_size=64,
        n_epochs=2,
        hidden_size=32,
        total_timesteps=20 * 16 * 8,
        checkpoint_every=10 * 16 * 8,
        eval_every=10 * 16 * 8,
        eval_episodes=8,
    )


def small() -> TradingConfig:
    """Train on a laptop: ... on two cores."""
    return TradingConfig(
        n_envs=64,
        n_steps=128,
        sequence_length=32,
        batch_size=1024,
        lr_schedule="linear",
        total_timesteps=1_000_000,
        checkpoint_every=100_000,
        eval_every=100_000,
        eval_episodes=64,
    )


def base() -> TradingConfig:
    """Train on a GPU."""
    return TradingConfig(
        n_envs=4096,
        n_steps=64,
        sequence_length=32,
        batch_size=32_768,
        lr_schedule="linear",
        total_timesteps=100_000_000,
        checkpoint_every=10_000_000,
        eval_every=5_000_000,
        eval_episodes=1024,
    )


summary = "options trading, recurrent PPO"
config_class = TradingConfig
PRESETS: dict[str, Callable[[], TradingConfig]] = {preset.__name__: preset for preset in (debug, small, base)}


def build(config: TradingConfig, world: Any) -> Any:
    """Build the learner for this configuration on this rank. Called by every rank."""
    from lockstep.workloads.trading.build import build_learner

    return build_learner(config, world)
