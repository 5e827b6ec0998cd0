"""Environments in which the caller plays one team against the opposition. E: boards, A: players of the team."""

import torch
from torch import Tensor

from lockstep.envs.vector_env import Transition
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import GameRules
from lockstep.workloads.snakes3v3.observations.observe import SIZES, observe
from lockstep.workloads.snakes3v3.opponents.opposition import Opposition
from lockstep.workloads.snakes3v3.settings import ObservationKind
from lockstep.workloads.snakes3v3.training.rewards import REWARDS


class SnakesTeamEnv:
    """One team's environment: observation (E, A, D), action (E, A), reward (E, A) in training or (E,) in evaluation."""

    action_count = 4

    def __init__(
        self,
        rules: GameRules,
        index: Tensor,
        seed: int,
        device: torch.device,
        *,
        team: int,
        observation: ObservationKind,
        opposition: Opposition,
        reward: str | None,
        death_penalty: float = 0.0,
    ) -> None:
        """`reward`: a name in REWARDS; None = one reward per team, the change of its lead over the best rival."""
        self.game = SnakesGame(rules, index, seed, device)
        self._players = rules.teams[team]
        # Index tensors on the device, the own team first: a CUDA graph must not copy from the host.
        self._sides = [torch.tensor(players, device=device) for players in (self._players, *opposition.teams)]
        self._observation, self._opposition = observation, opposition
        self._reward, self._death_penalty = reward, death_penalty
        # Permutes actions from "own team, then the opposition" to the order of the players.
        self._order = torch.tensor([*self._players, *opposition.players], device=device).argsort()
        self._earned = torch.zeros((len(index), len(self._players)), device=device)
        """(E, A) sum of the rewards of the episode so far, for the metrics."""

    @property
    def count(self) -> int:
        """E."""
        return self.game.count

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """(A, D)."""
        return len(self._players), SIZES[self._observation]

    def prepare(self, steps: int) -> dict[str, float]:
        """Choose the opponent for the round that starts at this step, counted over all ranks; returns its metrics."""
        return self._opposition.prepare(steps, self.game)

    def reset(self) -> Tensor:
        """Restart every game."""
        self.game.reset()
        self._earned.zero_()
        return self._observe()

    def step(self, action: Tensor) -> Transition:
        """Advance every board by the actions (E, A) of the team and those of the opposition."""
        # Before the step, so that the evaluation reward is the change of the lead.
        before = self._margin()
        everyone = torch.cat((action, self._opposition.act(self.game)), 1)
        done = self.game.step(everyone.index_select(1, self._order))
        margin = self._margin()
        if self._reward is None:
            reward = (margin - before).float()
        else:
            # Rewards are computed before the restart, because they read the final scores and positions.
            reward = REWARDS[self._reward](self.game, done, self._players)
            reward = reward - self._death_penalty * done.dead.index_select(1, self._sides[0])
            self._earned += reward
        # Likewise the info, which reports the final scores.
        info = self._info(margin)
        self.game.restart(done.ended)
        self._earned *= ~done.ended[:, None]
        # Reaching max_steps is the end of the game, not a truncation: the score counts then.
        return Transition(self._observe(), reward, done.ended, torch.zeros_like(done.ended), info=info)

    def state(self) -> dict[str, Tensor]:
        """Everything needed to resume, each tensor with E as its first axis."""
        return {**self.game.state(), "earned": self._earned}

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Resume from what `state` returned; returns the current observation."""
        self.game.load(state)
        self._earned.copy_(state["earned"])
        return self._observe()

    def _observe(self) -> Tensor:
        return observe(self.game, self._observation, self._players)

    def _scores(self) -> tuple[Tensor, Tensor]:
        """(E,) scores of the team and of its best rival."""
        own, *rivals = (self.game.score.index_select(1, players).sum(1) for players in self._sides)
        return own, torch.stack(rivals).amax(0)

    def _margin(self) -> Tensor:
        own, rival = self._scores()
        return own - rival

    def _info(self, margin: Tensor) -> dict[str, Tensor]:
        own, rival = self._scores()
        info = {"score": own, "rival_score": rival, "won": margin > 0, "lost": margin < 0}
        if self._reward is not None:
            # A clone, because `_earned` is reset in place afterwards.
            snakes = self._earned.clone().unbind(1)
            info |= {f"snake_{number}": earned for number, earned in enumerate(snakes, start=1)}
            info["total"] = self._earned.sum(1)
        return {name: value.float() for name, value in info.items()}
