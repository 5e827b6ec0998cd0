"""Snake, learned by PPO: what can be set, the presets, and how it is built."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from lockstep.algorithms.ppo.config import PPOConfig
from lockstep.config.fields import OffOrCount, Range, Steps
from lockstep.errors import UserError


@dataclass(frozen=True, kw_only=True)
class SnakeConfig(PPOConfig):
    """Snake: the game, its rewards and the network that plays it."""

    grid_size: Annotated[int, Range(at_least=4, at_most=128)] = 12
    """Side of the square board, in cells."""
    max_steps: Annotated[int | None, Range(at_least=1, at_most=1_000_000)] = None
    """Steps after which an episode ends; none = 200 x grid_size."""
    time_limit: Literal["death", "truncation"] = "death"
    """What running out of steps is: a death with its penalty, or a cut after which the value goes on."""
    step_penalty: float = -0.01
    """Reward of a step that neither eats nor dies."""
    death_penalty: float = -1.0
    """Reward of the step that dies."""
    food_reward: float = 1.0
    """Reward of the step that eats."""
    distance_reward_scale: Annotated[float, Range(at_least=0)] = 0.0
    """Added reward for each cell that a step comes nearer to the food; 0 = none."""
    frame_stack: Annotated[int, Range(at_least=1, at_most=16)] = 1
    """How many of the last observations the network sees."""
    policy_arch: Literal["tiny", "scalable", "deep"] = "scalable"
    """The network: tiny (fixed size), scalable (width and depth) or deep (width, with a skip connection)."""
    policy_width: Annotated[int, Range(at_least=16, at_most=512)] = 32
    """Channels of the network's convolutions."""
    policy_depth: Annotated[int, Range(at_least=1, at_most=4)] = 2
    """Convolutions of the scalable network."""
    pretrain_bc: Steps = 0
    """Steps of imitating the scripted expert first, over all ranks and out of total_timesteps; 0 = none."""
    auto_scale: bool = False
    """Choose environments, steps, batch and network by the device, where they are not given."""
    max_utilization: bool = False
    """As auto_scale, but fill the device."""
    max_n_envs: OffOrCount = 0
    """The most environments that auto_scale may choose, over all ranks; 0 = no limit."""
    max_batch_size: OffOrCount = 0
    """The largest batch that auto_scale may choose, over all ranks; 0 = no limit."""

    only_values: ClassVar[Mapping[str, str]] = {
        "policy": "CnnPolicy",
        "use_sde": "false",
        "sde_sample_freq": "-1",
        "normalize_images": "false",
    }

    def validate(self) -> None:
        """See that limits on what auto_scale chooses come with it."""
        super().validate()
        for name in ("max_n_envs", "max_batch_size"):
            if getattr(self, name) and not (self.auto_scale or self.max_utilization):
                told = f"{name} {getattr(self, name)}"
                raise UserError(f"{told} only limits what auto_scale chooses; add --auto-scale or leave it out")

    @property
    def episode_limit(self) -> int:
        """Steps after which an episode ends."""
        return self.max_steps or 200 * self.grid_size


def debug() -> SnakeConfig:
    """A few seconds of training on a small board: for tests and first steps."""
    return SnakeConfig(
        grid_size=6,
        n_envs=16,
        n_steps=16,
        batch_size=64,
        n_epochs=2,
        total_timesteps=20 * 16 * 16,
        policy_width=16,
        policy_depth=1,
        checkpoint_every=10 * 16 * 16,
        eval_every=10 * 16 * 16,
        eval_episodes=8,
    )


def small() -> SnakeConfig:
    """Train on 8 x 8 with a laptop: about ten minutes on two cores."""
    return SnakeConfig(
        grid_size=8,
        n_envs=64,
        n_steps=128,
        batch_size=1024,
        learning_rate=2.5e-3,
        lr_schedule="linear",
        ent_coef=0.003,
        total_timesteps=1_000_000,
        checkpoint_every=50_000,
        eval_every=100_000,
        eval_episodes=20,
    )


def base() -> SnakeConfig:
    """Train on 12 x 12, the board that results are compared on: minutes on a GPU."""
    return SnakeConfig(
        grid_size=12,
        n_envs=4096,
        n_steps=32,
        batch_size=8192,
        learning_rate=1e-3,
        lr_schedule="linear",
        gamma=0.995,
        ent_coef=0.003,
        policy_width=64,
        policy_depth=3,
        total_timesteps=200_000_000,
        checkpoint_every=10_000_000,
        eval_every=10_000_000,
        eval_episodes=100,
        log_every=4,
    )


def large() -> SnakeConfig:
    """Train on 16 x 16 with a wider network."""
    return replace(base(), grid_size=16, policy_width=128, total_timesteps=500_000_000)


def b200() -> SnakeConfig:
    """Train on 12 x 12 with sizes for data-centre GPUs."""
    return replace(base(), n_envs=16_384, batch_size=32_768, policy_width=128, total_timesteps=1_000_000_000)


def reward_shaping_distance() -> SnakeConfig:
    """Train as base, also rewarded for coming nearer to the food."""
    return replace(base(), distance_reward_scale=0.01)


def frame_stacking() -> SnakeConfig:
    """Train as base, seeing the last four observations."""
    return replace(base(), frame_stack=4)


def high_entropy() -> SnakeConfig:
    """Train as base, exploring more."""
    return replace(base(), ent_coef=0.05)


summary = "Snake, PPO"
config_class = SnakeConfig
PRESETS: dict[str, Callable[[], SnakeConfig]] = {
    preset.__name__: preset
    for preset in (debug, small, base, large, b200, reward_shaping_distance, frame_stacking, high_entropy)
}


ENVIRONMENTS = {
    "lockstep/Snake-v0": (
        "lockstep.workloads.snake.gym:SnakeGymEnv",
        "lockstep.workloads.snake.gym:SnakeGymVectorEnv",
    )
}
"""What Gymnasium can make: one environment, or many in one."""
BASELINES = ("scripted", "random")
"""Policies without a network that a trained one is compared with."""
EXPORTS = ("sb3", "onnx")
"""Formats of other programs that a model can be written in."""
PEERS = ("sb3",)
"""Other programs that the same can be trained with, for comparison."""


def build(config: SnakeConfig, world: Any) -> Any:
    """Build the learner for this configuration on this rank. Called by every rank."""
    from lockstep.workloads.snake.build import build_learner

    return build_learner(config, world)


def fit(config: SnakeConfig, explicit: Collection[str]) -> tuple[SnakeConfig, list[str]]:
    """Choose sizes by the device where auto_scale or max_utilization ask for it."""
    if not (config.auto_scale or config.max_utilization):
        return config, []
    from lockstep.compute.machine import this_machine
    from lockstep.workloads.snake.autoscale import autoscale

    fitted, changes = autoscale(config, this_machine(), explicit)
    return fitted, [f"auto_scale: {c.field} {c.old} -> {c.new} ({c.reason})" for c in changes]


def evaluate_baseline(name: str, config: SnakeConfig, world: Any, episodes: int, seed: int) -> Any:
    """Evaluate one of BASELINES. Called by every rank."""
    from lockstep.workloads.snake.build import evaluate_baseline as evaluate

    return evaluate(name, config, world, episodes, seed)


def scenes(config: SnakeConfig, act: Any, seed: int) -> Any:
    """Play one episode after another, yielding what there is to see after every step."""
    from lockstep.workloads.snake.watch import scenes as watch

    return watch(config, act, seed)


def export(form: str, config: SnakeConfig, weights: Any, path: Any) -> None:
    """Write a trained model in one of EXPORTS."""
    from lockstep.workloads.snake import export as exports

    exports.WRITERS[form](config, weights, path)


def run_peer(name: str, config: SnakeConfig, updates: int, device: str) -> int:
    """Train on with one of PEERS, for some updates of these sizes; returns the environment steps."""
    from lockstep.workloads.snake import peers

    return peers.TRAINERS[name](config, updates, device)
