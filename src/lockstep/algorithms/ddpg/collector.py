"""Collects experience: a rank's environments and the replay buffer they fill.

T: time, E: environments, A: agents, K: actions.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from lockstep.algorithms.ddpg.actions import ActionVectors
from lockstep.compute import random
from lockstep.compute.graphs import Accelerator
from lockstep.compute.lane_states import LaneStates, cut, joined
from lockstep.compute.lanewise import Lanewise
from lockstep.compute.precision import Precision
from lockstep.compute.stopwatch import Stopwatch
from lockstep.envs.vector_env import TeamEnv, Transition
from lockstep.reporting.metrics import Stat, Stats
from lockstep.rl.replay import Column, Replay
from lockstep.rl.rollout import EpisodeLedger, Episodes


class Collector:
    """Runs the environments of a rank with the current actor, and stores their steps lane by lane."""

    def __init__(
        self,
        env: TeamEnv,
        index: Tensor,
        lanes: range,
        actor: nn.Module,
        vectors: ActionVectors,
        *,
        cohorts: int,
        steps: int,
        rows: int,
        observation_dtype: torch.dtype,
        tag: str,
        seed: int,
        precision: Precision,
        accelerator: Accelerator,
        watch: Stopwatch,
        ragged: bool = False,
        restarts: bool = False,
    ) -> None:
        """`index` (E,): the environments' numbers in the whole run. `ragged` and `restarts`: see `TeamProblem`.

        `cohorts`: equal groups of environments, in order, each of which has the bits that it would have alone.
        """
        self.env = env
        self.lanes = lanes
        self._index = index
        self._actor, self._vectors = actor, vectors
        self._cohorts = cohorts
        self._decide = Lanewise(self._decided, actor, cohorts, index.device, accelerator.compiles)
        self._tag, self._seed = tag, seed
        self._precision, self._accelerator, self._watch = precision, accelerator, watch
        # A tensor of its own, because every step copies the next observation into it. Environments on the host return
        # host tensors; the actor runs on the device of `index`.
        self._observation = env.reset().to(index.device, copy=True)
        self._agents = self._observation.shape[1]
        device, count = self._observation.device, env.count
        if not self._observation.is_floating_point():
            # Images: bytes are exact, and the smallest format.
            observation_dtype = self._observation.dtype
        # Next observations are not stored: they are in the rows that follow.
        columns = {
            "observation": Column(tuple(self._observation.shape[1:]), observation_dtype),
            "action": vectors.replay_column(self._agents),
            "reward": Column((self._agents,)),
        }
        self._ragged, self._restarts = ragged, restarts
        columns |= ragged_columns(columns["observation"], self._agents) if ragged else {"ended": Column((), torch.bool)}
        self.memory = Replay(lanes, rows, count // len(lanes), columns, seed, device)
        self.ledger = EpisodeLedger(count, device)
        # These tensors are written in place and never replaced: a recorded graph reads and writes fixed addresses.
        # Positions are tensors (1,) for the same reason: a Python number would be frozen into the graph.
        self._row = torch.zeros(1, dtype=torch.int64, device=device)
        self._time = torch.zeros(1, dtype=torch.int64, device=device)
        per_agent = (steps, count, self._agents)
        self._epsilon = torch.zeros((steps, 1), device=device)
        self._explore = torch.zeros((steps, count), device=device)
        self._noise = torch.zeros((*per_agent, *vectors.noise_shape), device=device)
        self._exploring = torch.zeros((*per_agent, vectors.count), device=device)
        self._reward = torch.zeros((steps, count), device=device)
        self._ended = torch.zeros((steps, count), dtype=torch.bool, device=device)
        # By name, (T, E); the names are known after the first step.
        self._info: dict[str, Tensor] = {}
        self._stage: dict[str, float] = {}
        self._recorded: dict[Hashable, Callable[[], None]] = {}
        self._advance: Callable[[], None] = self._step
        # A recorded step is one graph, whose parts cannot be timed separately.
        self._part = (lambda _: nullcontext()) if accelerator.records else watch.part

    def begin(self, steps: int, written: int, epsilon: Iterable[float]) -> None:
        """Start a round after `steps` steps over all ranks and `written` rows, and draw its random numbers."""
        with self._watch.part("acting"):
            self._stage = self.env.prepare(steps)
            # Environments may run different code in each stage, for example a new opponent's: record one graph each.
            stage = tuple(sorted(self._stage.items()))
            if stage not in self._recorded:
                self._recorded[stage] = self._accelerator.record(self._step)
            self._advance = self._recorded[stage]
            self._time.zero_()
            self._row.fill_(written % self.memory.rows)
            # All numbers of the round at once: one kernel each, outside of the recorded step. They are indexed by
            # environment and step, so they do not depend on how environments are divided among ranks.
            self._epsilon.copy_(torch.tensor(list(epsilon))[:, None])
            device = self._index.device
            step = (written + torch.arange(len(self._epsilon), device=device)).view(-1, 1, 1, 1)
            number = torch.arange(self._agents * self._vectors.count, device=device).view(self._agents, -1)
            # One number per environment: all of its agents explore in the same steps.
            env = self._index.view(1, -1, 1, 1)
            self._explore.copy_(random.uniform(self._seed, "explore", env, step).flatten(1))
            # By cohort: on some machines a logarithm rounds differently where a vector of instructions ends.
            noise, exploring = [], []
            for part in env.chunk(self._cohorts, dim=1):
                noise.append(self._vectors.noise(self._seed, part, step, number))
                exploring.append(self._vectors.explore(random.uniform(self._seed, "vector", part, step, number)))
            self._noise.copy_(torch.cat(noise, dim=1))
            self._exploring.copy_(torch.cat(exploring, dim=1))
            with torch.no_grad():
                explores = self._explore[0] < self._epsilon[0]
                self._decide.begin(self._observation, explores, self._exploring[0], self._noise[0])

    @torch.no_grad()
    def advance(self, steps: int) -> None:
        """Take the next `steps` steps of the round."""
        for _ in range(steps):
            self._advance()

    def report(self) -> list[Stats]:
        """Each cohort's metrics of the round and of the episodes that ended in it."""
        with self._watch.part("acting"):
            episodes = self.ledger.close(self._reward, self._ended, self._info)
        return [self._stats(part) for part in episodes.by_group(self._cohorts, self.env.count // self._cohorts)]

    def _stats(self, episodes: Episodes) -> Stats:
        stats = {"rollout/return_mean": Stat.of(episodes.returns), "rollout/length_mean": Stat.of(episodes.lengths)}
        stats |= {f"{self._tag}/{name}_mean": Stat.of(values) for name, values in episodes.info.items()}
        return stats | {f"{self._tag}/{name}": Stat.of([value]) for name, value in self._stage.items()}

    def _step(self) -> None:
        with self._part("acting"):
            explores = self._now(self._explore) < self._now(self._epsilon)
            vector, action = self._decide(
                self._observation, explores, self._now(self._exploring), self._now(self._noise)
            )
        with self._part("environment"):
            transition = self.env.step(action).to(action.device)
        with self._part("acting"):
            ends = _ragged_ends(transition) if self._ragged else _common_ends(transition)
            self.memory.write(
                self._row,
                observation=self._observation,
                action=self._vectors.to_replay(vector, action),
                reward=transition.reward,
                **ends,
            )
            # Returns are reported for the team. An episode of several ends is over when the last agent has left.
            ended = transition.terminated | transition.truncated
            self._log(transition.reward.sum(1), ended.all(1) if self._ragged else ended, transition.info)
            self._observation.copy_(transition.observation)
            self._time += 1
            self._row.copy_((self._row + 1) % self.memory.rows)

    def _decided(
        self, observation: Tensor, explores: Tensor, exploring: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Action vectors and the actions that are drawn from them; where an environment explores, of the given ones."""
        with self._precision.autocast():
            outputs = self._actor(observation)
        # Both are computed, and selected on the device.
        vector = torch.where(explores[:, None, None], exploring, self._vectors.activate(outputs))
        return vector, self._vectors.sample(vector, noise)

    def _now(self, numbers: Tensor) -> Tensor:
        """The row of the current step."""
        return numbers.index_select(0, self._time).squeeze(0)

    def _log(self, reward: Tensor, ended: Tensor, info: Mapping[str, Tensor]) -> None:
        self._reward.index_copy_(0, self._time, reward.unsqueeze(0))
        self._ended.index_copy_(0, self._time, ended.unsqueeze(0))
        for name, row in info.items():
            rows = self._info.setdefault(name, torch.zeros_like(self._ended, dtype=row.dtype))
            rows.index_copy_(0, self._time, row.unsqueeze(0))

    def state(self, written: int) -> dict[int, dict[str, Tensor]]:
        """Each lane's environments, unfinished episodes and replay buffer."""
        environments = {f"env.{name}": value for name, value in self.env.state().items()}
        environments |= {"ledger.return": self.ledger.open_return, "ledger.length": self.ledger.open_length}
        # The replay buffer already has the lanes as its first axis.
        memory = {f"memory.{name}": value for name, value in self.memory.state(written).items()}
        return cut(self.lanes, environments, memory)

    def load(self, lanes: LaneStates, written: int) -> None:
        """Restore what `state` returned, with the lanes divided in any way."""
        self._observation.copy_(self.env.load(joined(self.lanes, lanes, "env.")))
        self.memory.load(joined(self.lanes, lanes, "memory.", torch.stack), written)
        if self._restarts:
            self._cut_off(written)
            return
        ledger = joined(self.lanes, lanes, "ledger.")
        self.ledger.open_return.copy_(ledger["return"])
        self.ledger.open_length.copy_(ledger["length"])

    def _cut_off(self, written: int) -> None:
        """Begin anew after `written` rows, as the episodes that the last row belongs to are lost."""
        self.ledger.open_return.zero_()
        self.ledger.open_length.zero_()
        # The next row is another episode's, so what followed the last step has to come from its own final observation.
        row = torch.tensor([(written - 1) % self.memory.rows], device=self._index.device)
        self.memory.write(row, cut=torch.ones(len(self._index), dtype=torch.bool, device=self._index.device))


def ragged_columns(observation: Column, agents: int) -> dict[str, Column]:
    """What the replay buffer stores if agents leave at different times or are cut off; see `losses.CriticLoss`."""
    flags = Column((agents,), torch.bool)
    return {"acted": flags, "terminated": flags, "cut": Column((), torch.bool), "final": observation}


def _ragged_ends(transition: Transition) -> dict[str, Tensor]:
    final, acted = transition.final_observation, transition.valid
    assert final is not None and acted is not None, "these agents leave at different times"
    # After an agent is cut off, its value can only be estimated from this step's last observation.
    cut = (transition.terminated | transition.truncated).all(1) | transition.truncated.any(1)
    return {"acted": acted, "terminated": transition.terminated, "cut": cut, "final": final}


def _common_ends(transition: Transition) -> dict[str, Tensor]:
    # Without a column for the last observation, there is nothing to estimate the rest of a truncated episode from.
    assert transition.final_observation is None, "these teams' episodes are never truncated"
    return {"ended": transition.terminated | transition.truncated}
