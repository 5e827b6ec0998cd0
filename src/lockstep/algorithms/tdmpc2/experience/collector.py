"""Acting: one cohort's environments and the replay buffer they fill. E: environments, A: action size."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.experience.columns import TASK, newest
from lockstep.algorithms.tdmpc2.planning.actor import Actor
from lockstep.compute import random
from lockstep.compute.lane_states import LaneStates, cut, joined
from lockstep.compute.stopwatch import Stopwatch
from lockstep.envs.vector_env import ContinuousEnv
from lockstep.errors import UserError
from lockstep.reporting.metrics import Stat, Stats
from lockstep.rl.rollout import EpisodeLedger
from lockstep.rl.sequence_replay import SequenceReplay


class Collector:
    """Runs the environments of one cohort on the host, and stores their steps in a replay buffer on the device."""

    data_digest = ""
    """Empty: there is no recorded data."""

    def __init__(
        self,
        env: ContinuousEnv,
        index: Tensor,
        lanes: range,
        memory: SequenceReplay,
        actor: Actor,
        *,
        task: Tensor | None,
        mask: Tensor | None,
        steps: int,
        tag: str,
        seed: int,
        watch: Stopwatch,
        frames: int = 1,
        restarts: bool = False,
    ) -> None:
        """`index` (E,): the environments' numbers in the whole run. `steps`: steps of a round.

        `task` (E,), and `mask` (E, A) with zeros for components that a task does not have: on the host; None for one.
        `frames`: as in `Spaces`. `restarts`: a resume begins new episodes.
        """
        self.lanes, self.memory, self._restarts = lanes, memory, restarts
        self._env, self._index, self._actor, self._task, self._mask = env, index, actor, task, mask
        self._tag, self._seed, self._watch, self._frames = tag, seed, watch, frames
        self._observation = env.reset()
        # As if an episode had just ended everywhere: the first plans start from zero.
        actor.see(self._observation, torch.ones(env.count, dtype=torch.bool))
        self._random: Tensor | None = None  # (E, A) actions of a random step; None = the actor chooses
        self._ledger = EpisodeLedger(env.count, torch.device("cpu"))
        self._reward = torch.zeros((steps, env.count))
        self._ended = torch.zeros((steps, env.count), dtype=torch.bool)
        self._info: dict[str, Tensor] = {}
        self._time = 0  # steps of the current round so far

    def decide(self, number: int, at_random: bool) -> None:
        """Start choosing the actions of step `number`: uniformly at random, or with the actor."""
        with self._watch.part("acting"):
            if at_random:
                numbers = torch.arange(self._env.action_dim)
                # A function of the environment and the step alone, so the same on any number of ranks.
                self._random = 2.0 * random.uniform(self._seed, "wild", self._index[:, None], number, numbers) - 1.0
                if self._mask is not None:
                    self._random = self._random * self._mask
            else:
                self._random = None
                self._actor.decide(number)

    def act(self, number: int) -> None:
        """Step the environments with the chosen actions and store the result as row `number`."""
        with self._watch.part("acting"):
            action = self._actor.action() if self._random is None else self._random
        with self._watch.part("environment"):
            transition = self._env.step(action)
        with self._watch.part("acting"):
            ended = transition.terminated | transition.truncated
            # What followed in the same episode, not the first observation of the next one.
            following = transition.observation if transition.final_observation is None else transition.final_observation
            task = {} if self._task is None else {TASK: self._task}
            self.memory.append(
                number,
                ended,
                observation=newest(self._observation, self._frames),
                following=newest(following, self._frames),
                action=action,
                reward=transition.reward,
                terminated=transition.terminated,
                **task,
            )
            self._note(transition.reward, ended, transition.info)
            self._observation = transition.observation
            self._actor.see(self._observation, ended)

    def _note(self, reward: Tensor, ended: Tensor, info: Mapping[str, Tensor]) -> None:
        time = self._time
        self._reward[time], self._ended[time] = reward, ended
        for name, row in info.items():
            # Created on first use: only the first step shows which columns an environment reports.
            self._info.setdefault(name, torch.zeros_like(self._ended, dtype=row.dtype))[time] = row
        self._time += 1

    def report(self) -> Stats:
        """Metrics of the episodes that ended in a round."""
        self._time = 0
        episodes = self._ledger.close(self._reward, self._ended, self._info)
        stats = {"rollout/return_mean": Stat.of(episodes.returns), "rollout/length_mean": Stat.of(episodes.lengths)}
        # A mean of task numbers has no meaning.
        reported = {name: values for name, values in episodes.info.items() if name != TASK}
        return stats | {f"{self._tag}/{name}_mean": Stat.of(values) for name, values in reported.items()}

    def state(self, written: int) -> dict[int, dict[str, Tensor]]:
        """Each lane's environments, plans, unfinished episodes and replay buffer."""
        envs = {f"env.{name}": value for name, value in self._env.state().items()}
        envs |= {"ledger.return": self._ledger.open_return, "ledger.length": self._ledger.open_length}
        envs["plan"] = self._actor.state()
        memory = {f"memory.{name}": value for name, value in self.memory.state(written).items()}
        return cut(self.lanes, envs, memory)

    def load(self, lanes: LaneStates, written: int) -> None:
        """Restore what `state` returned, with the lanes divided in any way."""
        # Lanes may have been saved by other ranks, in other cohorts: their rows are joined in the order of lanes.
        saved = joined(self.lanes, lanes, "env.")
        count = len(next(iter(saved.values())))
        if count != self._env.count:
            raise UserError(
                f"num_envs: the checkpoint has {count} environments where this run would have {self._env.count}; "
                "resume with the num_envs that the run was started with"
            )
        self._observation = self._env.load(saved)
        self.memory.load(joined(self.lanes, lanes, "memory.", torch.stack), written)
        self.memory.resume(written)
        if self._restarts:
            # New episodes begin everywhere: no return, plan or sequence of steps reaches from the lost ones into them.
            self._ledger = EpisodeLedger(self._env.count, torch.device("cpu"))
            self._actor.see(self._observation, torch.ones(self._env.count, dtype=torch.bool))
            self.memory.end_episodes()
            return
        self._actor.load(self._observation, joined(self.lanes, lanes, "plan")[""])
        ledger = joined(self.lanes, lanes, "ledger.")
        self._ledger.open_return.copy_(ledger["return"])
        self._ledger.open_length.copy_(ledger["length"])
