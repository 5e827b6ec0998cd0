"""3v3 Snakes: presets and capabilities."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, get_args

from lockstep.config.config import Preset, WorkloadSettings, preset
from lockstep.untrusted import is_file
from lockstep.workloads.capabilities import Acting, PlayRequest
from lockstep.workloads.contests import ArenaRequest, Contestant
from lockstep.workloads.snakes3v3.settings import Scripted, SnakesConfig, SnakesSettings
from lockstep.workloads.workload import Workload

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.distributed.world import World
    from lockstep.reporting.display import Narrator
    from lockstep.reporting.evaluation import Evaluation
    from lockstep.reporting.film import Scene
    from lockstep.rl.problem import TeamProblem
    from lockstep.workloads.snakes3v3.matches.arena import ArenaResult
    from lockstep.workloads.snakes3v3.matches.tournament import Tally


class Snakes3v3(Workload):
    """Two teams of three snakes; one of them is trained."""

    name = "snakes3v3"
    summary = "3v3 Snakes, multi-agent DDPG"
    settings: ClassVar[type[WorkloadSettings]] = SnakesSettings
    algorithms = ("ddpg",)
    presets: ClassVar[Mapping[str, Preset]] = {
        "debug": preset(
            "A few seconds of training with short games and small networks: for tests and first steps.",
            # Small numbers, but with all parts of a run: self-play, gradient updates, evaluations, checkpoints.
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
        ),
        "small": preset(
            "Train on a laptop: beats random within a minute, and greedy within a few, on two cores.",
            # A round is a whole game on each board.
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
        ),
        "base": preset(
            "Train on a GPU, in minutes, against the strongest scripted team and a past version of itself.",
            n_envs=4096,
            n_steps=200,
            batch_size=8192,
            buffer_size=524_288,
            hidden_size=512,
            a_lr=5e-4,
            c_lr=5e-4,
            lr_schedule="linear",
            # Applied 4,096 times per step of the boards: epsilon reaches its minimum after 32 million steps.
            epsilon_speed=0.9999999,
            opponent="greedy",
            self_play=1,
            self_play_every=2000,
            total_timesteps=204_800_000,
            checkpoint_every=102_400_000,
            eval_every=10_240_000,
            eval_episodes=400,
        ),
        "guide": preset(
            "Train as the guide does: its algorithm, observation, rewards, opponents and numbers, on eight boards.",
            # Without our additions to the algorithm.
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
            # 50,000 games of 200 steps; saved and evaluated every 1,000 games.
            total_timesteps=50_000 * 200,
            checkpoint_every=1000 * 200,
            eval_every=1000 * 200,
            eval_episodes=100,
        ),
    }
    baselines = get_args(Scripted)
    exports: ClassVar[tuple[str, ...]] = ("submission",)
    # Imported once by the fork server, before it forks the ranks.
    preloads = ("lockstep.algorithms.ddpg.learner", "lockstep.workloads.snakes3v3.problem")

    def problem(self, config: SnakesConfig, world: "World") -> "TeamProblem":
        """Boards on this rank's device. Called by every rank."""
        from lockstep.workloads.snakes3v3.problem import snakes_problem

        return snakes_problem(config, world.device)

    def read_foreign(self, config: SnakesConfig, path: Path) -> "Mapping[str, Tensor]":
        """Weights of another program: an actor of the competition's, or a state dict with our names."""
        from lockstep.workloads.snakes3v3.competition.actor_file import read_actor

        return read_actor(config, path)

    def narrator(self, config: SnakesConfig, world: "World") -> "Narrator":
        """Report progress in the guide's format."""
        from lockstep.workloads.snakes3v3.console import guide_lines

        length = config.workload.episode_length
        return lambda step, metrics: guide_lines(step // length, metrics)

    def evaluate_baseline(
        self, name: str, config: SnakesConfig, world: "World", episodes: int, seed: int
    ) -> "Evaluation":
        """Evaluate one of `baselines` against the configuration's eval_opponent. Called by every rank."""
        from lockstep.workloads.snakes3v3.problem import evaluate_baseline

        return evaluate_baseline(name, config.workload, world, episodes, seed)

    def contest(
        self, config: SnakesConfig, team: Contestant, against: Contestant, games: int, seed: int, world: "World"
    ) -> "ArenaResult":
        """Play games between two contestants, half of them from each side."""
        from lockstep.workloads.snakes3v3.matches.arena import contest

        return contest(config.workload.rules, team, against, games, seed, world)

    def arena(
        self,
        players: Sequence[Contestant | Path],
        request: ArenaRequest,
        world: "World",
        say: Callable[[str], None],
    ) -> "Tally":
        """Let every two players play, half of their games from each side."""
        from lockstep.workloads.snakes3v3.matches.tournament import hold_arena

        return hold_arena(players, request, world.device, say)

    def is_submission(self, path: Path) -> bool:
        """Whether a path is a submission of the competition: the file itself, or a folder with it."""
        return is_file(path if path.name == "submission.py" else path / "submission.py")

    def scenes(self, request: PlayRequest) -> "Iterator[Scene]":
        """Play game after game, yielding a scene per step."""
        from lockstep.workloads.snakes3v3.matches.watch import scenes

        return scenes(request.config.workload, request.act, request.seed)

    def write_log(self, config: SnakesConfig, act: Acting, seed: int, path: Path) -> None:
        """Play the first game of a seed and write its log to a JSON file."""
        from lockstep.workloads.snakes3v3.matches.watch import write_game

        write_game(config.workload, act, seed, path)

    def read_log(self, path: Path) -> "Iterator[Scene]":
        """Yield the scenes of a game logged to a JSON file."""
        from lockstep.workloads.snakes3v3.matches.watch import logged_scenes

        return logged_scenes(path)

    def export(self, form: str, config: SnakesConfig, weights: "Mapping[str, Tensor]", path: Path) -> None:
        """Write a trained team as one of `exports`."""
        from lockstep.workloads.snakes3v3.competition.export import export_team

        export_team(config, weights, path)
