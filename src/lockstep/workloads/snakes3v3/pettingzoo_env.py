"""Snakes as a PettingZoo parallel environment: one board, one agent per snake, numpy in and out."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils import seeding
from numpy.typing import NDArray

from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3, GameRules
from lockstep.workloads.snakes3v3.matches import render
from lockstep.workloads.snakes3v3.observations.observe import SIZES, observe
from lockstep.workloads.snakes3v3.settings import ObservationKind

try:
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise UserError(
        "the PettingZoo environment needs PettingZoo, which is not installed: pip install 'lockstep-train[pettingzoo]'"
    ) from error

RENDER_MODES = ("rgb_array", "ansi")

Observations = dict[str, NDArray[np.float32]]
Numbers = dict[str, float]
Flags = dict[str, bool]
Infos = dict[str, dict[str, Any]]


class SnakesParallelEnv(ParallelEnv[str, NDArray[np.float32], int]):
    """One game with raw rewards. All agents end together, after max_steps or on a full board."""

    metadata = {"name": "snakes3v3_v0", "render_modes": list(RENDER_MODES), "render_fps": 10, "is_parallelizable": True}

    def __init__(
        self, rules: GameRules = SNAKES_3V3, observation: ObservationKind = "rich", render_mode: str | None = None
    ) -> None:
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise UserError(f'snakes3v3: no render_mode "{render_mode}"; allowed: {", ".join(RENDER_MODES)}')
        self.rules, self.render_mode = rules, render_mode
        self.possible_agents = [f"snake_{player}" for player in range(rules.players)]
        self.agents: list[str] = []
        self._kind = observation
        self._observation_space = spaces.Box(-np.inf, np.inf, (SIZES[observation],), np.float32)
        self._action_spaces = {agent: spaces.Discrete(4) for agent in self.possible_agents}
        # Created once: PettingZoo requires the same object at every call.
        self._observation_spaces = dict.fromkeys(self.possible_agents, self._observation_space)
        self._game: SnakesGame | None = None

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The space of an agent's observations."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """0 up, 1 down, 2 left, 3 right."""
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observations, Infos]:
        """Start a game; the same seed starts the same sequence of games."""
        if seed is not None or self._game is None:
            generator, _ = seeding.np_random(seed)
            self._game = SnakesGame(self.rules, torch.zeros(1), int(generator.integers(2**63)), torch.device("cpu"))
        self._game.reset()
        self.agents = list(self.possible_agents)
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[Observations, Numbers, Flags, Flags, Infos]:
        """Move all snakes at once."""
        # PettingZoo's convention for a step after the end.
        if not self.agents:
            return {}, {}, {}, {}, {}
        game, agents = self._started(), self.agents
        wrong = [agent for agent in agents if actions.get(agent) not in range(4)]
        if wrong:
            raise UserError(
                f"snakes3v3: action of {wrong[0]} is {actions.get(wrong[0])}; allowed: 0 up, 1 down, 2 left, 3 right"
            )
        done = game.step(torch.tensor([[int(actions[agent]) for agent in agents]]))
        ended = bool(done.ended)
        rewards = dict(zip(agents, done.reward[0].tolist(), strict=True))
        died, scores = done.dead[0].tolist(), game.score[0].tolist()
        infos = {agent: {"died": died[player], "score": scores[player]} for player, agent in enumerate(agents)}
        observations = self._observations()
        if ended:
            self.agents = []
        return observations, rewards, dict.fromkeys(agents, ended), dict.fromkeys(agents, False), infos

    def render(self) -> NDArray[np.uint8] | str | None:  # type: ignore[override]
        """The board in the format of the render mode."""
        if self.render_mode == "rgb_array":
            return render.frame(self._started(), 0)
        return render.text(self._started(), 0) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Do nothing: the environment holds no resources."""

    def _observations(self) -> Observations:
        seen = observe(self._started(), self._kind, range(self.rules.players))[0].numpy()
        return dict(zip(self.possible_agents, seen, strict=True))

    def _started(self) -> SnakesGame:
        if self._game is None:
            raise UserError("snakes3v3: call reset before step or render")
        return self._game
