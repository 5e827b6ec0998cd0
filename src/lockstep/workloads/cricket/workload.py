"""Next-ball prediction with a graph network: the presets, and what can be done with it."""

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep.errors import UserError
from lockstep.workloads.cricket.config import CricketConfig


def debug() -> CricketConfig:
    """A few seconds of training in a small simulated league: for tests and first steps."""
    return CricketConfig(
        matches=10,
        hidden_dim=16,
        num_layers=2,
        num_heads=2,
        player_dim=8,
        history_groups=2,
        batch_size=64,
        eval_batch_size=256,
        epochs=2,
        learning_rate=3e-3,
        lr_schedule="constant",
        checkpoint_every=1000,
        drop_relations="same_over",
    )


def small() -> CricketConfig:
    """Train on a laptop: a smaller network that leaves the earlier balls out, in minutes for the simulated league."""
    return CricketConfig(
        hidden_dim=32,
        num_layers=2,
        player_dim=16,
        batch_size=256,
        eval_batch_size=1024,
        epochs=6,
        patience=3,
        learning_rate=2e-3,
        lr_warmup=20_000,
        ema_decay=0.99,
        id_dropout=0.3,
        log_every=10,
        checkpoint_every=100_000,
        # Balls are thirty times the work of all other nodes together.
        drop_relations="ball",
    )


def base() -> CricketConfig:
    """Train on a GPU with all matches of --data: four networks side by side, on the graph without earlier balls."""
    return CricketConfig(
        drop_relations="ball",
        members=4,
        batch_size=2048,
        eval_batch_size=8192,
        epochs=5,
        patience=2,
        learning_rate=1e-3,
        lr_warmup=100_000,
        weight_decay=0.1,
        ema_decay=0.999,
        dropout=0.3,
        id_dropout=0.5,
        log_every=20,
        check_every=200,
        checkpoint_every=2_000_000,
    )


def whole() -> CricketConfig:
    """Train on a GPU with the whole graph: every earlier ball of the innings and its relations, too."""
    return replace(base(), drop_relations="", members=1, epochs=4, weight_decay=0.05, dropout=0.2, id_dropout=0.3)


def guide() -> CricketConfig:
    """Train as the guide does: its loss, rates and sizes, with a warm-up that is one."""
    return CricketConfig(
        batch_size=64,
        loss="focal",
        class_weights=True,
        learning_rate=1e-3,
        weight_decay=0.01,
        dropout=0.1,
        id_dropout=0.0,
        lr_warmup=100_000,
        epochs=100,
        patience=10,
        log_every=100,
        checkpoint_every=2_000_000,
    )


summary = "Cricket: the next ball, by a graph network"
config_class = CricketConfig
PRESETS: dict[str, Callable[[], CricketConfig]] = {
    preset.__name__: preset for preset in (debug, small, base, whole, guide)
}

BASELINES = ("prior", "phase", "over", "additive")
"""Predictions without a network: by frequency, by phase, by over and wickets, and the additive model."""


def fit(config: CricketConfig, explicit: Collection[str]) -> tuple[CricketConfig, list[str]]:
    """See that the matches and their split are there, before anything is started."""
    if config.data:
        from lockstep.workloads.cricket.split import check_source

        check_source(config.data, config.split, config.split_seed)
    return config, []


def check_kept(config: CricketConfig, model: Path) -> None:
    """See that what a stored model was trained on is still where it was: the network alone does not know a name."""
    kept = {
        config.data: "its training matches are needed for names and careers",
        config.split: "its split file is needed to tell which matches it was trained on",
    }
    for place, why in kept.items():
        if place and not Path(place).exists():
            raise UserError(f"{model}: {why}, and nothing is at {place}, where it expects them; put them back there")


def build(config: CricketConfig, world: Any) -> Any:
    """Build the learner for this configuration on this rank. Called by every rank."""
    from lockstep.workloads.cricket.build import build_learner

    return build_learner(config, world)


def assess(
    config: CricketConfig, policy: str, learner: Any, data: str, part: str, world: Any, bad_files: str = ""
) -> Any:
    """Measure a trained learner, or one of BASELINES, on other data or a part of the run's. Called by every rank.

    `bad_files`: what to do with files of other data that are no matches; empty = as the configuration says.
    """
    from lockstep.workloads.cricket.assess import assess as measure

    return measure(config, policy, learner, data, part, world, bad_files)


def scenes(config: CricketConfig, act: Any, seed: int, data: str = "", bad_files: str = "") -> Any:
    """Follow one match after another, yielding every ball with its prediction."""
    from lockstep.workloads.cricket.watch import scenes as watch

    return watch(config, act, seed, data, bad_files)
