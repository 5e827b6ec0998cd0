"""Acting: one cohort's environments and the memory that they fill. T: time, E: environments, A: agents, K: actions."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn

from lockstep.algorithms.ddpg.actions import Vectors
from lockstep.compute import random
from lockstep.compute.graphs import Accelerator
from lockstep.compute.lane_states import LaneStates, cut, joined
from lockstep.compute.precision import Precision
from lockstep.compute.stopwatch import Stopwatch
from lockstep.envs.vector_env import VectorEnv
from lockstep.reporting.metrics import Stat, Stats
from lockstep.rl.replay import Column, Replay
from lockstep.rl.rollout import EpisodeLedger


class TeamEnv(VectorEnv, Protocol):
    """Environments in which A agents act at once: observation (E, A, ...), action (E, A), reward (E, A).

    Episodes end for good: none is cut in a way that would need a value of what might have followed.
    """

    def prepare(self, steps: int) -> dict[str, float]:
        """Set up for the round that begins after so many steps over all ranks; returns what is worth reporting.

        Two rounds with the same report run the same code, so that a recording of one serves the other.
        """


class Collector:
    """The environments of one cohort, acted in with the current actor and remembered lane by lane."""

    def __init__(
        self,
        env: TeamEnv,
        index: Tensor,
        lanes: range,
        actor: nn.Module,
        vectors: Vectors,
        *,
        steps: int,
        rows: int,
        kept_as: torch.dtype,
        tag: str,
        seed: int,
        precision: Precision,
        accelerator: Accelerator,
        watch: Stopwatch,
    ) -> None:
        self.env = env
        self.lanes = lanes
        self._index = index
        self._actor, self._vectors = actor, vectors
        self._tag, self._seed = tag, seed
        self._precision, self._accelerator, self._watch = precision, accelerator, watch
        self._observation = env.reset().clone()
        self._agents = self._observation.shape[1]
        device, count = self._observation.device, env.count
        columns = {
            "observation": Column(tuple(self._observation.shape[1:]), kept_as),
            "action": vectors.column(self._agents),
            "reward": Column((self._agents,)),
            "ended": Column((), torch.bool),
        }
        self.memory = Replay(lanes, rows, count // len(lanes), columns, seed, device)
        self.ledger = EpisodeLedger(count, device)
        self._row = torch.zeros(1, dtype=torch.int64, device=device)
        self._time = torch.zeros(1, dtype=torch.int64, device=device)
        agents = (steps, count, self._agents)
        self._epsilon = torch.zeros((steps, 1), device=device)
        self._coin = torch.zeros((steps, count), device=device)
        self._drawn = torch.zeros(agents, device=device)
        self._wild = torch.zeros((*agents, vectors.count), device=device)
        self._reward = torch.zeros((steps, count), device=device)
        self._ended = torch.zeros((steps, count), dtype=torch.bool, device=device)
        self._info: dict[str, Tensor] = {}
        self._notes: dict[str, float] = {}
        self._recorded: dict[Hashable, Callable[[], None]] = {}
        self._advance: Callable[[], None] = self._step
        # Timing each part needs the parts apart; a recorded step is one graph.
        self._part = (lambda _: nullcontext()) if accelerator.records else watch.part

    def begin(self, steps: int, written: int, epsilon: Iterable[float]) -> None:
        """Draw the numbers of a round that begins after `steps` steps over all ranks and `written` rows."""
        with self._watch.part("acting"):
            self._notes = self.env.prepare(steps)
            stage = tuple(sorted(self._notes.items()))
            if stage not in self._recorded:
                self._recorded[stage] = self._accelerator.record(self._step)
            self._advance = self._recorded[stage]
            self._time.zero_()
            self._row.fill_(written % self.memory.rows)
            self._epsilon.copy_(torch.tensor(list(epsilon))[:, None])
            device = self._index.device
            clock = (written + torch.arange(len(self._epsilon), device=device)).view(-1, 1, 1, 1)
            board = self._index.view(1, -1, 1, 1)
            number = torch.arange(self._agents * self._vectors.count, device=device).view(self._agents, -1)
            self._coin.copy_(random.uniform(self._seed, "explore", board, clock).flatten(1))
            self._drawn.copy_(random.uniform(self._seed, "action", board, clock, number[:, :1]).squeeze(-1))
            self._wild.copy_(self._vectors.exploring(random.uniform(self._seed, "vector", board, clock, number)))

    @torch.no_grad()
    def advance(self, steps: int) -> None:
        """Make so many steps of the round."""
        for _ in range(steps):
            self._advance()

    def report(self) -> Stats:
        """What there is to say about the round, and about the episodes that ended in it."""
        with self._watch.part("acting"):
            episodes = self.ledger.close(self._reward, self._ended, self._info)
        stats = {"rollout/return_mean": Stat.of(episodes.returns), "rollout/length_mean": Stat.of(episodes.lengths)}
        stats |= {f"{self._tag}/{name}_mean": Stat.of(values) for name, values in episodes.info.items()}
        return stats | {f"{self._tag}/{name}": Stat.of([value]) for name, value in self._notes.items()}

    def _step(self) -> None:
        with self._part("acting"), self._precision.autocast():
            outputs = self._actor(self._observation)
        with self._part("acting"):
            explores = self._now(self._coin) < self._now(self._epsilon)
            vector = torch.where(explores[:, None, None], self._now(self._wild), self._vectors.of(outputs))
            action = self._vectors.choose(vector, self._now(self._drawn))
        with self._part("environment"):
            transition = self.env.step(action)
        with self._part("acting"):
            assert transition.final_observation is None, "an episode ends for good here"
            ended = transition.terminated | transition.truncated
            self.memory.write(
                self._row,
                observation=self._observation,
                action=self._vectors.remembered(vector, action),
                reward=transition.reward,
                ended=ended,
            )
            self._note(transition.reward.sum(1), ended, transition.info)
            self._observation.copy_(transition.observation)
            self._time += 1
            self._row.copy_((self._row + 1) % self.memory.rows)

    def _now(self, numbers: Tensor) -> Tensor:
        return numbers.index_select(0, self._time).squeeze(0)

    def _note(self, reward: Tensor, ended: Tensor, info: Mapping[str, Tensor]) -> None:
        self._reward.index_copy_(0, self._time, reward.unsqueeze(0))
        self._ended.index_copy_(0, self._time, ended.unsqueeze(0))
        for name, row in info.items():
            kept = self._info.setdefault(name, torch.zeros_like(self._ended, dtype=row.dtype))
            kept.index_copy_(0, self._time, row.unsqueeze(0))

    def state(self, written: int) -> dict[int, dict[str, Tensor]]:
        """Each lane's environments, unfinished episodes and memory."""
        boards = {f"env.{name}": value for name, value in self.env.state().items()}
        boards |= {"ledger.return": self.ledger.open_return, "ledger.length": self.ledger.open_length}
        memory = {f"memory.{name}": value for name, value in self.memory.state(written).items()}
        return cut(self.lanes, boards, memory)

    def load(self, lanes: LaneStates, written: int) -> None:
        """Take up a state from `state`, saved in any division of the lanes."""
        self._observation.copy_(self.env.load(joined(self.lanes, lanes, "env.")))
        ledger = joined(self.lanes, lanes, "ledger.")
        self.ledger.open_return.copy_(ledger["return"])
        self.ledger.open_length.copy_(ledger["length"])
        self.memory.load(joined(self.lanes, lanes, "memory.", torch.stack), written)
