"""What can be set about 3v3 Snakes. Nothing here needs torch."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from lockstep.algorithms.ddpg.config import DDPGConfig
from lockstep.config.fields import Count, OffOrCount, Range
from lockstep.errors import UserError

ACTIONS = 4
Scripted = Literal["random", "level1", "level2", "level3", "level4", "greedy", "evasive"]


@dataclass(frozen=True, kw_only=True)
class SnakesConfig(DDPGConfig):
    """3v3 Snakes: the game, what the snakes see and are paid for, and who they play against."""

    game_name: Literal["snakes_3v3", "snakes_5p"] = "snakes_3v3"
    """The game: two teams of three, or five snakes each for itself, the first of which is trained."""
    episode_length: Annotated[int, Range(at_least=1, at_most=10_000)] = 200
    """Steps of a game."""
    max_episodes: OffOrCount = 0
    """Games to train for, over all boards: sets total_timesteps to so many times episode_length; 0 = leave it."""
    save_interval: OffOrCount = 0
    """Games between checkpoints, over all boards: sets checkpoint_every; 0 = leave it."""
    observation: Literal["rich", "jidi26", "guide30", "final35"] = "rich"
    """What a snake sees: rich (ours) or the vectors of the competition, the guide and its later version."""
    reward: Literal["raw", "plain", "jidi", "guide", "final"] = "raw"
    """What a snake is paid for: what it gains, what it gains on its enemies, or a shaped reward of the guide's line."""
    death_penalty: Annotated[float, Range(at_least=0)] = 0.3
    """Taken off a snake's reward when it dies, besides what the reward itself takes."""
    opponent: Literal["schedule", "random", "level1", "level2", "level3", "level4", "greedy", "evasive"] = "schedule"
    """Who plays the other team in training: always the same, or whoever opponent_difficulty_strategy says."""
    opponent_difficulty_strategy: Literal["curriculum", "linear", "exponential", "measured"] = "curriculum"
    """How the opponent's level rises over the run; measured = by strength as measured, greedy last."""
    enable_opponent_evasion: bool = False
    """Let evasive opponents take over at some time."""
    opponent_evasion_start_episode: OffOrCount = 40_000
    """Game, counted over all boards, from which on they do."""
    self_play: Annotated[int, Range(at_least=0, at_most=63)] = 0
    """Past selves to play against, each on as many boards as the scripted opponent; 0 = none."""
    self_play_every: Count = 1000
    """Gradient updates after which the oldest past self makes room for the present one."""
    eval_opponent: Scripted = "greedy"
    """Who plays the other team in evaluations."""
    hidden_size: Annotated[int, Range(at_least=8, at_most=4096)] = 256
    """Width of the networks."""
    hidden_layers: Annotated[int, Range(at_least=1, at_most=8)] = 2
    """Layers of the networks before their outputs."""
    load_model: str = ""
    """Run, directory or file whose weights to begin with; none = new ones."""

    only_values: ClassVar[dict[str, str]] = {"model_episode": "0"}

    @property
    def episodes(self) -> int:
        """Games of the whole run, over all boards."""
        return max(self.total_timesteps // self.episode_length, 1)

    @property
    def team_size(self) -> int:
        """Snakes that are trained."""
        return 1 if self.game_name == "snakes_5p" else 3

    def validate(self) -> None:
        """See that evasion begins within the run, and that past selves divide the boards evenly."""
        self._count_in_steps()
        super().validate()
        start = self.opponent_evasion_start_episode
        if self.enable_opponent_evasion and start >= self.episodes:
            raise UserError(
                f"opponent_evasion_start_episode {start} lies beyond the run's {self.episodes} games; "
                "lower it, or raise --max-episodes"
            )
        boards, dealt = self.n_envs // self.effective_lanes, self.self_play + 1
        if boards % dealt:
            raise UserError(
                f"self_play {self.self_play}: a lane's {boards} boards cannot be dealt evenly to {dealt} opponents "
                f"(past selves and the scripted one); make n_envs a multiple of lanes x {dealt} = "
                f"{self.effective_lanes * dealt}"
            )

    def _count_in_steps(self) -> None:
        """What the guide counts in games is kept in steps, as everything else that the run asks for."""
        if self.max_episodes:
            object.__setattr__(self, "total_timesteps", self.max_episodes * self.episode_length)
        if self.save_interval:
            object.__setattr__(self, "checkpoint_every", self.save_interval * self.episode_length)
