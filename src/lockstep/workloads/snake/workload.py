"""The Snake workload: its presets and capabilities."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.config.config import NetworkSettings, Preset, WorkloadSettings, preset
from lockstep.workloads.capabilities import PlayRequest
from lockstep.workloads.snake.settings import SnakeCNNSettings, SnakeConfig, SnakeSettings
from lockstep.workloads.workload import Workload

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.distributed.world import World
    from lockstep.reporting.evaluation import Evaluation
    from lockstep.reporting.film import Scene
    from lockstep.rl.problem import EnvProblem

_BASE = preset(
    "Train on 12 x 12, the board that results are compared on: minutes on a GPU.",
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


class Snake(Workload):
    """One snake on a square board."""

    name = "snake"
    summary = "Snake, PPO"
    settings: ClassVar[type[WorkloadSettings]] = SnakeSettings
    algorithms = ("ppo",)
    networks: ClassVar[Mapping[str, Mapping[str, type[NetworkSettings]]]] = {"ppo": {"cnn": SnakeCNNSettings}}
    presets: ClassVar[Mapping[str, Preset]] = {
        "debug": preset(
            "A few seconds of training on a small board: for tests and first steps.",
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
        ),
        "small": preset(
            "Train on 8 x 8 with a laptop: about ten minutes on two cores.",
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
        ),
        "base": _BASE,
        "large": _BASE.but(
            "Train on 16 x 16 with a wider network.", grid_size=16, policy_width=128, total_timesteps=500_000_000
        ),
        "b200": _BASE.but(
            "Train on 12 x 12 with sizes for data-centre GPUs.",
            n_envs=16_384,
            batch_size=32_768,
            policy_width=128,
            total_timesteps=1_000_000_000,
        ),
        "guide": _BASE.but(
            "Train on 12 x 12 with the guide's boards and network, in rollouts short enough for its 10 million steps.",
            n_envs=256,
            n_steps=64,
            batch_size=2048,
            policy_width=128,
            total_timesteps=10_000_000,
            checkpoint_every=500_000,
            eval_every=500_000,
        ),
        "reward_shaping_distance": _BASE.but(
            "Train as base, also rewarded for coming nearer to the food.", distance_reward_scale=0.01
        ),
        "frame_stacking": _BASE.but("Train as base, seeing the last four observations.", frame_stack=4),
        "high_entropy": _BASE.but("Train as base, exploring more.", ent_coef=0.05),
    }
    environments: ClassVar[Mapping[str, tuple[str, str]]] = {
        "lockstep/Snake-v0": (
            "lockstep.workloads.snake.gym:SnakeGymEnv",
            "lockstep.workloads.snake.gym:SnakeGymVectorEnv",
        )
    }
    baselines = ("scripted", "random")
    exports: ClassVar[tuple[str, ...]] = ("sb3",)
    peers: ClassVar[tuple[str, ...]] = ("sb3",)
    like_peers: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    preloads = ("lockstep.algorithms.ppo.learner", "lockstep.workloads.snake.problem", "lockstep.workloads.snake.model")

    def problem(self, config: SnakeConfig, world: "World") -> "EnvProblem":
        """Boards on this rank's device. Called by every rank."""
        from lockstep.workloads.snake.problem import snake_problem

        return snake_problem(config.workload, world)

    def read_foreign(self, config: SnakeConfig, path: Path) -> "Mapping[str, Tensor]":
        """Weights of another program: a Stable-Baselines3 archive (.zip), or a state dict with our names."""
        if path.suffix != ".zip":
            return super().read_foreign(config, path)
        from lockstep.workloads.snake.sb3_file import read_sb3

        return read_sb3(config, path)

    def evaluate_baseline(
        self, name: str, config: SnakeConfig, world: "World", episodes: int, seed: int
    ) -> "Evaluation":
        """Evaluate one of `baselines`. Called by every rank."""
        from lockstep.workloads.snake.problem import evaluate_baseline

        return evaluate_baseline(name, config.workload, world, episodes, seed)

    def scenes(self, request: PlayRequest) -> "Iterator[Scene]":
        """Play one episode after another, yielding a scene after every step."""
        from lockstep.workloads.snake.watch import scenes

        return scenes(request.config.workload, request.act, request.seed)

    def export(self, form: str, config: SnakeConfig, weights: "Mapping[str, Tensor]", path: Path) -> None:
        """Write a trained model in one of `exports`."""
        from lockstep.workloads.snake.export import write_sb3

        write_sb3(config, weights, path)

    def run_peer(self, name: str, config: SnakeConfig, updates: int, device: str) -> int:
        """Continue training with one of `peers`, for some updates of these sizes; returns the environment steps."""
        from lockstep.workloads.snake import peers

        return peers.TRAINERS[name](config, updates, device)
