"""A workload of your own in one file: a corridor with a door at its right end.

lockstep train corridor:Corridor --preset debug          (from this folder, or with it on PYTHONPATH)
lockstep train corridor:Corridor --preset debug --ranks 2 --sync exact
lockstep verify corridor:Corridor --ranks 1,2,4
lockstep eval RUN, lockstep play RUN, lockstep resume RUN
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch

import lockstep
from lockstep.compute import random
from lockstep.config.fields import Range
from lockstep.reporting.film import Scene
from lockstep.workloads.capabilities import PlayRequest

LEFT, RIGHT = 0, 1


@dataclass(frozen=True, kw_only=True)
class CorridorSettings(lockstep.WorkloadSettings):
    """The corridor."""

    cells: Annotated[int, Range(at_least=2, at_most=1000)] = 8
    """Length of the corridor."""
    time_limit: Annotated[int, Range(at_least=1, at_most=100_000)] = 40
    """Steps after which an episode is cut."""


class CorridorEnv:
    """E corridors as tensors. Each starts in a random cell and ends at the door."""

    action_count = 2

    def __init__(self, settings: CorridorSettings, index: torch.Tensor, seed: int) -> None:
        """`index` (E,): each environment's number over the whole run, by which its random numbers are drawn.

        So an environment has the same episodes on any number of ranks.
        """
        self.settings, self.index, self.seed = settings, index, seed
        self.count = len(index)
        self.observation_shape = (settings.cells,)
        self.cell, self.steps, self.episode = (torch.zeros_like(index) for _ in range(3))

    def reset(self) -> torch.Tensor:
        """Start every episode anew; returns the (E, cells) observation."""
        self.episode.zero_()
        self._begin(torch.ones(self.count, dtype=torch.bool, device=self.index.device))
        return self._observation()

    def step(self, action: torch.Tensor) -> lockstep.Transition:
        """Walk one cell; episodes that end begin anew in the same step."""
        self.cell.add_(torch.where(action == RIGHT, 1, -1)).clamp_(0, self.settings.cells - 1)
        self.steps += 1
        terminated = self.cell == self.settings.cells - 1
        truncated = (self.steps >= self.settings.time_limit) & ~terminated
        reward = torch.where(terminated, 1.0, -0.01)
        final = self._observation()
        self.episode += terminated | truncated
        self._begin(terminated | truncated)
        return lockstep.Transition(self._observation(), reward, terminated, truncated, final)

    def state(self) -> dict[str, torch.Tensor]:
        """Everything needed to continue, each tensor with E first: this is what a checkpoint saves."""
        return {"cell": self.cell.clone(), "steps": self.steps.clone(), "episode": self.episode.clone()}

    def load(self, state: dict[str, torch.Tensor]) -> torch.Tensor:
        """Continue from a state; returns the observation to act on."""
        for name, value in state.items():
            getattr(self, name).copy_(value)
        return self._observation()

    def _begin(self, where: torch.Tensor) -> None:
        """Put some environments into a random cell, but not at the door."""
        drawn = random.uniform(self.seed, "corridor start", self.index, self.episode)
        start = (drawn * (self.settings.cells - 1)).to(torch.int64)
        self.cell.copy_(torch.where(where, start, self.cell))
        self.steps.masked_fill_(where, 0)

    def _observation(self) -> torch.Tensor:
        return torch.nn.functional.one_hot(self.cell, self.settings.cells).float()


class Corridor(lockstep.Workload):
    """Walk to the door."""

    name = "corridor"
    summary = "A corridor with a door, PPO"
    settings: ClassVar[type[lockstep.WorkloadSettings]] = CorridorSettings
    algorithms = ("ppo",)
    presets: ClassVar = {
        "debug": lockstep.preset(
            "A few seconds on one core.",
            n_envs=16,
            n_steps=16,
            batch_size=64,
            total_timesteps=20 * 256,
            learning_rate=3e-3,
            checkpoint_every=10 * 256,
            eval_every=10 * 256,
            eval_episodes=8,
        ),
        "base": lockstep.preset("A longer corridor.", cells=40, time_limit=200, n_envs=64, n_steps=64, batch_size=512),
    }

    def problem(self, config: lockstep.Config, world: lockstep.World) -> lockstep.EnvProblem:
        """Corridors on this rank's device."""
        settings = config.workload
        return lockstep.EnvProblem(
            name="corridor",
            observation_shape=(settings.cells,),
            actions=lockstep.Discrete(2),
            make_env=lambda index, seed: CorridorEnv(settings, index.to(world.device), seed),
        )

    def scenes(self, request: PlayRequest) -> Iterator[Scene]:
        """For `lockstep play`: game after game, a scene for each step."""
        settings = request.config.workload
        env = CorridorEnv(settings, torch.zeros(1, dtype=torch.int64), request.seed)
        observation, score = env.reset(), 0.0
        while True:
            cell, (action, _) = int(env.cell), request.act(observation)
            done = env.step(action)
            ended = bool(done.terminated | done.truncated)
            observation, score = done.observation, score + float(done.reward)
            yield self._scene(settings.cells, cell, score, ended)
            score = 0.0 if ended else score

    exports: ClassVar[tuple[str, ...]] = ("csv",)

    def export(self, form: str, config: lockstep.Config, weights: dict[str, torch.Tensor], path: Path) -> None:
        """For `lockstep export RUN --format csv`: the probability of walking right, cell by cell."""
        network = config.network.build(self.problem(config, lockstep.World()), config)
        network.load_state_dict(dict(weights))
        with torch.no_grad():
            right = network(torch.eye(config.workload.cells))[0].softmax(-1)[:, RIGHT].tolist()
        lines = [f"{cell},{probability:.4f}" for cell, probability in enumerate(right)]
        path.write_text("\n".join(["cell,right", *lines, ""]))

    def _scene(self, cells: int, cell: int, score: float, ended: bool) -> Scene:
        picture = np.full((40, 20 * cells, 3), 40, np.uint8)
        picture[10:30, 20 * cell + 4 : 20 * cell + 16] = (190, 242, 100)
        line = "".join("@" if place == cell else "." for place in range(cells)) + "|"
        return Scene(
            text=f"{line}  {score:.2f}", image=picture, caption=f"return {score:.2f}", score=score, ended=ended
        )
