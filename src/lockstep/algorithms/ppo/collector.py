"""Acting: one cohort's environments and the roll-out they fill. T: time, E: environments of the cohort."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.compute import random
from lockstep.compute.graphs import Accelerator
from lockstep.compute.precision import Precision
from lockstep.compute.stopwatch import Stopwatch
from lockstep.envs.vector_env import Transition, VectorEnv
from lockstep.reporting.metrics import Stat, Stats
from lockstep.rl import distributions
from lockstep.rl.returns import generalised_advantages
from lockstep.rl.rollout import EpisodeLedger, Episodes, Rollout
from lockstep.rl.stateful_policy import StatefulPolicy

# Picks actions in place of the policy (behaviour cloning).
Teacher = Callable[[Any], Tensor]
# What there is to report of some episodes besides what the environment says: numbers of some of them, by name.
Describe = Callable[[Episodes], dict[str, Tensor]]


class Collector:
    """The environments of one cohort, acted in with the current policy."""

    def __init__(
        self,
        env: VectorEnv,
        index: Tensor,
        steps: int,
        network: nn.Module,
        *,
        sequence_length: int,
        tag: str,
        seed: int,
        gamma: float,
        gae_lambda: float,
        precision: Precision,
        accelerator: Accelerator,
        watch: Stopwatch,
        describe: Describe | None = None,
    ) -> None:
        self.env = env
        self.index = index
        self._sequence_length = sequence_length
        self._tag = tag
        self._seed = seed
        self._gamma, self._lambda = gamma, gae_lambda
        self._precision = precision
        self._watch = watch
        self._describe = describe
        self._observation = env.reset().clone()
        device = self._observation.device
        self._policy = StatefulPolicy(network, env.count, device)
        self.rollout = Rollout(steps, env.count, self._observation, device, self._policy.memory, sequence_length)
        self.ledger = EpisodeLedger(env.count, device)
        self._uniform = torch.zeros((steps, env.count), device=device)
        self._time = torch.zeros(1, dtype=torch.int64, device=device)
        # Timing each part needs the parts apart; a recorded step is one graph.
        self._part = (lambda _: nullcontext()) if accelerator.records else watch.part
        self._advance = accelerator.record(self._step)
        self._finish = accelerator.record(self._estimate)

    @torch.no_grad()
    def collect(self, update: int, teacher: Teacher | None = None) -> Stats:
        """Fill the roll-out; actions are the teacher's where one is given. Returns the episodes that ended."""
        steps = self.rollout.reward.shape[0]
        clock = update * steps + torch.arange(steps, device=self.index.device)
        self._uniform.copy_(random.uniform(self._seed, "action", self.index[None, :], clock[:, None]))
        self._time.zero_()
        for step in range(steps):
            if step % self._sequence_length == 0:
                self.rollout.write_memory(step // self._sequence_length, self._policy.memory)
            if teacher is None:
                self._advance()
            else:
                self._step(teacher)
        self._finish()
        with self._watch.part("acting"):
            episodes = self.ledger.close(self.rollout.reward, self.rollout.ended, self.rollout.info)
        stats = {"rollout/return_mean": Stat.of(episodes.returns), "rollout/length_mean": Stat.of(episodes.lengths)}
        told = episodes.info | (self._describe(episodes) if self._describe else {})
        stats |= {f"{self._tag}/{name}_mean": Stat.of(values) for name, values in told.items()}
        return stats

    def _step(self, teacher: Teacher | None = None) -> None:
        with self._part("acting"), self._precision.autocast():
            logits, value = self._policy.act(self._observation)
            log_probabilities = distributions.log_softmax(logits)
            uniform = self._uniform.index_select(0, self._time).squeeze(0)
            action = (
                distributions.sample_categorical(log_probabilities, uniform) if teacher is None else teacher(self.env)
            )
            self.rollout.write(
                self._time,
                observation=self._observation,
                action=action,
                log_probability=distributions.chosen(log_probabilities, action),
                value=value,
            )
        with self._part("environment"):
            transition = self.env.step(action)
        with self._part("acting"):
            ended = transition.terminated | transition.truncated
            self.rollout.write(self._time, reward=transition.reward, ended=ended, bootstrap=self._bootstrap(transition))
            self.rollout.write_info(self._time, transition.info)
            self._policy.forget(ended)
            self._observation.copy_(transition.observation)
            self._time += 1

    def _bootstrap(self, transition: Transition) -> Tensor:
        """The value of what a cut episode would still have earned, seen from its last step."""
        if transition.final_observation is None:
            return torch.zeros_like(transition.reward)
        with self._precision.autocast():
            value = self._policy.value(transition.final_observation)
        return self._gamma * value * transition.truncated

    def _estimate(self) -> None:
        with self._part("acting"), self._precision.autocast():
            last_value = self._policy.value(self._observation)
        rollout = self.rollout
        advantage = generalised_advantages(
            rollout.reward + rollout.bootstrap, rollout.value, rollout.ended, last_value, self._gamma, self._lambda
        )
        rollout.advantage.copy_(advantage)
        rollout.target.copy_(advantage + rollout.value)

    def state(self) -> dict[str, Tensor]:
        """Environments, unfinished episodes and what is remembered of them, each tensor with E first."""
        ledger = {"ledger.return": self.ledger.open_return, "ledger.length": self.ledger.open_length}
        return {f"env.{name}": value for name, value in self.env.state().items()} | ledger | self._policy.state()

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up a state from `state`."""
        env = {name.removeprefix("env."): value for name, value in state.items() if name.startswith("env.")}
        self._observation.copy_(self.env.load(env))
        self.ledger.open_return.copy_(state["ledger.return"])
        self.ledger.open_length.copy_(state["ledger.length"])
        self._policy.load(state)
