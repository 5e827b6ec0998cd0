"""Options trading, learned by recurrent PPO: the presets, and what can be done with it."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import date
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
    """Train on a laptop: about a million days."""
    return TradingConfig(
        # A day costs a CPU nearly the same for 64 accounts as for 256: many accounts and few days between updates.
        n_envs=256,
        n_steps=32,
        sequence_length=32,
        batch_size=4096,
        learning_rate=1e-3,
        lr_schedule="linear",
        gamma=0.97,
        gae_lambda=0.9,
        total_timesteps=256 * 32 * 128,
        checkpoint_every=256 * 32 * 16,
        eval_every=256 * 32 * 16,
        eval_episodes=128,
    )


def base() -> TradingConfig:
    """Train on a GPU, in minutes."""
    return replace(
        small(),
        n_envs=4096,
        n_steps=64,
        sequence_length=64,
        batch_size=16_384,
        # In bf16 a sequence drifts away from what its steps were, one by one; these products are small anyway.
        precision="fp32",
        total_timesteps=4096 * 64 * 400,
        checkpoint_every=4096 * 64 * 40,
        eval_every=4096 * 64 * 20,
        eval_episodes=1024,
    )


def guide() -> TradingConfig:
    """Train as the guide does: its network, rates, update interval and 1,000 episodes, on eight accounts."""
    return TradingConfig(
        network="clstm",
        n_envs=8,
        n_steps=16,
        sequence_length=16,
        batch_size=128,
        n_epochs=1,
        gae_lambda=0.0,
        ent_coef=0.0,
        max_grad_norm=1.0,
        total_timesteps=1000 * 250,
        checkpoint_every=100 * 250,
        eval_every=100 * 250,
        eval_episodes=32,
        log_every=10,
    )


def sb3() -> TradingConfig:
    """Train with sizes that sb3-contrib's RecurrentPPO is usually given; learns from whole roll-outs, as it does."""
    return replace(small(), n_envs=64, n_steps=128, sequence_length=128, batch_size=1024)


summary = "options trading, recurrent PPO"
config_class = TradingConfig
PRESETS: dict[str, Callable[[], TradingConfig]] = {
    preset.__name__: preset for preset in (debug, small, base, guide, sb3)
}
ENVIRONMENTS = {
    "lockstep/Trading-v0": (
        "lockstep.workloads.trading.gym:TradingGymEnv",
        "lockstep.workloads.trading.gym:TradingGymVectorEnv",
    )
}
"""What Gymnasium can make: one account, or many in one."""
BASELINES = ("hold", "random", "buy_and_hold", "always_call", "momentum", "oracle")
"""Traders without a network that a trained one is compared with."""
PEERS = ("sb3",)
"""Other programs that the same can be trained with, for comparison."""
LIKE_PEERS = {"sb3": {"lstms": "two"}}
"""What makes our network theirs: RecurrentPPO has an LSTM for the actor and one for the critic."""


def build(config: TradingConfig, world: Any) -> Any:
    """Build the learner for this configuration on this rank. Called by every rank."""
    from lockstep.workloads.trading.build import build_learner

    return build_learner(config, world)


def fit(config: TradingConfig, explicit: Collection[str]) -> tuple[TradingConfig, list[str]]:
    """See that the data can be read and traded, before anything is started."""
    if not config.data:
        return config, []
    from lockstep.workloads.trading.history import load_history

    history = load_history(config)
    history.starts("train", config.episode_length)
    if config.validation_part:
        history.starts("validation", config.episode_length)
    first, last, unseen = (date.fromordinal(int(day)) for day in (*history.day[[0, -1]], history.validation_day))
    days = f"{first} to {last}, those from {unseen} on kept from training"
    return config, [f"{'data':12} {', '.join(history.symbols)}: {len(history.day):,} bars, {days}"]


def narrator(config: TradingConfig, world: Any) -> Any:
    """Make what tells the progress of a run in the guide's words."""
    from lockstep.workloads.trading.narration import narrator as make

    return make(config, world)


def evaluate_baseline(name: str, config: TradingConfig, world: Any, episodes: int, seed: int) -> Any:
    """Evaluate one of BASELINES, on the data's days of validation where there is data. Called by every rank."""
    from lockstep.workloads.trading.baselines import evaluate_baseline as evaluate

    return evaluate(name, config, world, episodes, seed, historical=bool(config.data), split=config.judged_on)


def evaluate_trained(config: TradingConfig, learner: Any, world: Any, episodes: int, seed: int) -> Any:
    """Evaluate a trained policy, on the data's days of validation where there is data. Called by every rank."""
    from lockstep.workloads.trading.report import evaluate_judged

    return evaluate_judged(config, learner, world, episodes, seed)


def more_results(config: TradingConfig, results: dict[str, Any]) -> dict[str, Any]:
    """Say which prices an evaluation was made on."""
    days = {"train": "the days of training", "validation": "the days of validation, none of them trained on"}
    return {"on": days[config.judged_on] if config.data else f"simulated prices ({config.market})"}


def report(config: TradingConfig, learner: Any, world: Any, episodes: int, seed: int) -> Any:
    """Compare a trained policy with itself without memory, with BASELINES, and on days that it never saw."""
    from lockstep.workloads.trading.report import report as compare

    return compare(config, learner, world, episodes, seed)


def scenes(config: TradingConfig, act: Any, seed: int) -> Any:
    """Trade one episode after another, yielding what there is to see after every day."""
    from lockstep.workloads.trading.watch import scenes as watch

    return watch(config, act, seed)


def blotter(config: TradingConfig, act: Any, seed: int) -> Any:
    """Trade one episode after another, yielding for each the lines of its blotter and its reward."""
    from lockstep.workloads.trading.watch import blotter as tell

    return tell(config, act, seed)


def run_peer(name: str, config: TradingConfig, updates: int, device: str) -> int:
    """Train on with one of PEERS, for some updates of these sizes; returns the environment steps."""
    from lockstep.workloads.trading import peers

    return peers.TRAINERS[name](config, updates, device)
