"""Settings of 3v3 Snakes. Needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from lockstep.algorithms.ddpg.settings import DDPGSettings
from lockstep.config.config import AnyConfig, Config, NetworkSettings, WorkloadSettings
from lockstep.config.fields import Count, OffOrCount, Range
from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3, SNAKES_5P, GameRules

TEAM = 0
"""Index of the trained team."""
Scripted = Literal["random", "level1", "level2", "level3", "level4", "greedy", "evasive"]
"""A player that needs no network, by its name in `opponents.scripted`."""
ObservationKind = Literal["rich", "jidi26", "guide30", "final35"]
"""What a snake sees, by its name in `observations.observe`."""


@dataclass(frozen=True, kw_only=True)
class SnakesSettings(WorkloadSettings):
    """3v3 Snakes: the game, the observations and rewards, and the opponents."""

    game_name: Literal["snakes_3v3", "snakes_5p"] = "snakes_3v3"
    """The game: two teams of three, or five snakes each for itself, the first of which is trained."""
    episode_length: Annotated[int, Range(at_least=1, at_most=10_000)] = 200
    """Steps of a game."""
    max_episodes: OffOrCount = 0
    """Games to train for, over all boards: sets total_timesteps to this times episode_length; 0 = unset."""
    save_interval: OffOrCount = 0
    """Games between checkpoints, over all boards: sets checkpoint_every; 0 = unset."""
    observation: ObservationKind = "rich"
    """What a snake sees: rich (ours) or the vectors of the competition, the guide and its later version."""
    reward: Literal["raw", "plain", "jidi", "guide", "final"] = "raw"
    """Reward of a snake: raw (its gain), plain (relative to its enemies), or a shaped reward: jidi, guide, final."""
    death_penalty: Annotated[float, Range(at_least=0)] = 0.3
    """Subtracted from a snake's reward when it dies, in addition to what the reward itself subtracts."""
    opponent: Literal["schedule", Scripted] = "schedule"
    """Who plays the other team in training: a fixed player, or schedule = by opponent_difficulty_strategy."""
    opponent_difficulty_strategy: Literal["curriculum", "linear", "exponential", "measured"] = "curriculum"
    """How the opponent's level rises over the run; measured = in order of measured strength, greedy last."""
    enable_opponent_evasion: bool = False
    """Switch to evasive opponents at opponent_evasion_start_episode."""
    opponent_evasion_start_episode: OffOrCount = 40_000
    """Game, counted over all boards, from which opponents are evasive."""
    self_play: Annotated[int, Range(at_least=0, at_most=63)] = 0
    """Earlier versions of the actor to play against, each on as many boards as the scripted opponent; 0 = none."""
    self_play_every: Count = 1000
    """Gradient updates after which the current actor replaces the oldest of these versions."""
    eval_opponent: Scripted = "greedy"
    """Who plays the other team in evaluations."""

    # The guide's command lines pass --model-episode 0; other values have no meaning here.
    only_values: ClassVar[Mapping[str, str]] = {"model_episode": "0"}

    @property
    def rules(self) -> GameRules:
        """The game that is played."""
        rules = SNAKES_5P if self.game_name == "snakes_5p" else SNAKES_3V3
        return replace(rules, max_steps=self.episode_length)

    @property
    def team_size(self) -> int:
        """Snakes that are trained."""
        return len(self.rules.teams[TEAM])

    def episodes(self, steps: int) -> int:
        """Games in `steps` steps over all boards."""
        return max(steps // self.episode_length, 1)

    def translate(self, config: AnyConfig) -> dict[str, Any]:
        """Convert the guide's settings, which count games, to steps, in which all others count."""
        in_games = {"total_timesteps": self.max_episodes, "checkpoint_every": self.save_interval}
        return {name: games * self.episode_length for name, games in in_games.items() if games}

    def check(self, config: AnyConfig) -> None:
        """Check that evasion starts within the run, and that the opponents split the boards evenly."""
        start, episodes = self.opponent_evasion_start_episode, self.episodes(config.length)
        if self.enable_opponent_evasion and start >= episodes:
            raise UserError(
                f"opponent_evasion_start_episode {start} lies beyond the run's {episodes} games; "
                "lower it, or raise --max-episodes"
            )
        lanes, opponents = config.effective_lanes, self.self_play + 1
        boards, left = divmod(config.algorithm.lane_units(), lanes)
        # The algorithm itself refuses boards that do not split evenly into lanes.
        if not left and boards % opponents:
            raise UserError(
                f"self_play {self.self_play}: a lane's {boards} boards do not split evenly among {opponents} opponents "
                f"(past actors and the scripted one); make n_envs a multiple of lanes x {opponents} = "
                f"{lanes * opponents}"
            )


SnakesConfig = Config[DDPGSettings, SnakesSettings, NetworkSettings]
