"""Acting: a rank's environments and the rollout they fill. T: time, E: environments of the rank."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from lockstep.compute.lanewise import Lanewise
from lockstep.compute.precision import Precision
from lockstep.compute.stopwatch import Stopwatch
from lockstep.envs.split_env import of_each_batch
from lockstep.envs.vector_env import BatchedEnv, Transition
from lockstep.reporting.metrics import Stat, Stats
from lockstep.rl.distributions import ActionFamily
from lockstep.rl.normalisers import DiscountedReturns, RewardScale, scaled
from lockstep.rl.problem import Describe, Teacher
from lockstep.rl.returns import generalised_advantages
from lockstep.rl.rollout import EpisodeLedger, Episodes, Rollout, Step
from lockstep.rl.stateful_policy import StatefulPolicy


class Collector:
    """Runs the environments of a rank with the current policy."""

    def __init__(
        self,
        env: BatchedEnv,
        index: Tensor,
        steps: int,
        network: nn.Module,
        actions: ActionFamily,
        *,
        cohorts: int,
        sequence_length: int,
        tag: str,
        seed: int,
        gamma: float,
        gae_lambda: float,
        precision: Precision,
        record: Callable[[Callable[..., None]], Callable[..., None]],
        watch: Stopwatch,
        describe: Describe | None = None,
        reward_scale: RewardScale | None = None,
        masked: bool = False,
        restarts: bool = False,
        compiled: bool = False,
    ) -> None:
        """`index` (E,): the environments' numbers in the whole run. `record`: may record a step as a CUDA graph.

        `cohorts`: equal groups of environments, in order, each of which has the bits that it would have alone.
        `masked`: whether some steps are not valid. `restarts`: a resume begins new episodes. `compiled`: whether torch
        compiles the network.
        """
        self.env = env
        self.index = index
        self._cohorts = cohorts
        self._restarts = restarts
        self._sequence_length = sequence_length
        self._tag = tag
        self._seed = seed
        self._gamma, self._lambda = gamma, gae_lambda
        self._precision = precision
        self._watch = watch
        self._describe = describe
        self._actions = actions
        # Environments on the host return host tensors; the policy runs on the device of `index`.
        device = index.device
        self._observation = env.reset().to(device, copy=True)
        self._policy = StatefulPolicy(network, env.count, device, cohorts, compiled)
        self._decide = Lanewise(self._decided, network, cohorts, device, compiled)
        self._judge = Lanewise(self._judged, network, cohorts, device, compiled)
        storage = actions.storage(steps, env.count, device)
        memory = self._policy.memory
        self.rollout = Rollout(steps, env.count, self._observation, storage, memory, sequence_length, masked)
        self.ledger = EpisodeLedger(env.count, device)
        self._reward_scale = reward_scale
        self.returns = DiscountedReturns(env.count, gamma, device, cohorts) if reward_scale else None
        # What a step reads and writes is changed in place, never replaced: a recorded graph has fixed addresses.
        self._noise = torch.zeros_like(storage, dtype=torch.float32)
        self._time = torch.zeros(1, dtype=torch.int64, device=device)
        self._advance = record(self._recorded_step)
        self.estimate = record(self._estimate)
        # A recorded step is one graph, whose parts cannot be timed separately.
        self._recorded = self._advance != self._recorded_step
        self._part = (lambda _: nullcontext()) if self._recorded else watch.part

    @property
    def observation(self) -> Tensor:
        """The current observations (E, ...)."""
        return self._observation

    @torch.no_grad()
    def begin(self, update: int) -> None:
        """Start a new rollout."""
        steps = self.rollout.reward.shape[0]
        # All random numbers of the rollout at once, outside the recorded step. They depend on the environment's number
        # and the step alone, so the division into ranks does not change them.
        clock = update * steps + torch.arange(steps, device=self.index.device)
        # By cohort: on some machines a logarithm rounds differently where a vector of instructions ends.
        noise = [self._actions.noise(self._seed, part, clock) for part in self.index.chunk(self._cohorts)]
        self._noise.copy_(torch.cat(noise, dim=1))
        self._time.zero_()
        with self._precision.autocast():
            self._policy.begin(self._observation)
            self._decide.begin(self._observation, self._noise[0], *self._policy.memory)
        self.rollout.bootstrap.zero_()
        if self.returns is not None:
            self.returns.sums.zero_()

    @torch.no_grad()
    def advance(self, step: int, teacher: Teacher | None = None) -> None:
        """Take one step in every environment, with the teacher's actions if one is given."""
        if step % self._sequence_length == 0:
            self.rollout.write_memory(step // self._sequence_length, self._policy.memory)
        if self._recorded and teacher is None:
            self._advance()
        else:
            # Not recorded: a teacher is arbitrary Python code.
            self._step(step, teacher)

    @torch.no_grad()
    def report(self) -> list[Stats]:
        """Each cohort's statistics of the episodes that ended in the rollout."""
        with self._watch.part("acting"):
            episodes = self.ledger.close(self.rollout.reward, self.rollout.ended, self.rollout.info, self.rollout.valid)
        return [self._stats(part) for part in episodes.by_group(self._cohorts, self.env.count // self._cohorts)]

    def _stats(self, episodes: Episodes) -> Stats:
        stats = {"rollout/return_mean": Stat.of(episodes.returns), "rollout/length_mean": Stat.of(episodes.lengths)}
        reported = episodes.info | (self._describe(episodes) if self._describe else {})
        stats |= {f"{self._tag}/{name}_mean": Stat.of(values) for name, values in reported.items()}
        return stats

    def _recorded_step(self) -> None:
        self._step(self._time)
        self._time += 1

    def _step(self, step: Step, teacher: Teacher | None = None) -> None:
        with self._part("acting"), self._precision.autocast():
            memory = self._policy.memory
            if teacher is None:
                noise = self._noise[step] if isinstance(step, int) else self._noise.index_select(0, step).squeeze(0)
                action, bounded, log_probability, value, *after = self._decide(self._observation, noise, *memory)
            else:
                action = self._actions.sample_of(of_each_batch(self.env, teacher))
                bounded, log_probability, value, *after = self._judge(self._observation, action, *memory)
            self.rollout.write(
                step, observation=self._observation, action=action, log_probability=log_probability, value=value
            )
            self._policy.remember(after)
        with self._part("environment"):
            transition = self.env.step(bounded).to(action.device)
        with self._part("acting"):
            ended = transition.terminated | transition.truncated
            if transition.valid is not None:
                # A step without an action stands alone, as if it were an episode of its own: no advantage reaches past
                # it, and no recurrent state.
                self.rollout.write(step, valid=transition.valid)
                ended = ended | ~transition.valid
            self.rollout.write(step, reward=transition.reward, ended=ended)
            self._write_bootstrap(step, transition)
            self.rollout.write_info(step, transition.info)
            if self.returns is not None:
                self.returns.advance(transition.reward, ended)
            self._policy.forget(ended)
            self._observation.copy_(transition.observation)

    def _decided(self, observation: Tensor, noise: Tensor, *memory: Tensor) -> Sequence[Tensor]:
        """Actions as drawn and as the environment expects them, log-probabilities, values, the memory afterwards."""
        outputs, value, *after = self._policy.ask(observation, *memory)
        distribution = self._actions.of(outputs)
        action = distribution.draw(noise)
        return action, self._actions.bounded(action), distribution.log_probability(action), value, *after

    def _judged(self, observation: Tensor, action: Tensor, *memory: Tensor) -> Sequence[Tensor]:
        """The same for actions that are given."""
        outputs, value, *after = self._policy.ask(observation, *memory)
        return self._actions.bounded(action), self._actions.of(outputs).log_probability(action), value, *after

    def _write_bootstrap(self, step: Step, transition: Transition) -> None:
        """Store the discounted value of the rest of truncated episodes, which is added to their last reward."""
        truncated, final = transition.truncated, transition.final_observation
        # Most steps truncate nothing. A recorded step cannot ask, and on a GPU the host would have to wait to know it.
        on_host = isinstance(step, int) and truncated.device.type == "cpu"
        if final is None or (on_host and not truncated.any()):
            return
        with self._precision.autocast():
            value = self._policy.value(final)
        self.rollout.write(step, bootstrap=self._gamma * value * truncated)

    @torch.no_grad()
    def _estimate(self) -> None:
        """Compute advantages and value targets of the whole rollout."""
        with self._part("acting"), self._precision.autocast():
            last_value = self._policy.value(self._observation)
        rollout, scale = self.rollout, self._reward_scale
        reward = rollout.reward if scale is None else scaled(rollout.reward, scale.factor)
        # Values, and so what a truncated episode would still earn, are in the units of the scaled rewards already.
        advantage = generalised_advantages(
            reward + rollout.bootstrap, rollout.value, rollout.ended, last_value, self._gamma, self._lambda
        )
        rollout.advantage.copy_(advantage)
        rollout.target.copy_(advantage + rollout.value)

    def state(self) -> dict[str, Tensor]:
        """Environments, unfinished episodes and recurrent state, each tensor with E first."""
        ledger = {"ledger.return": self.ledger.open_return, "ledger.length": self.ledger.open_length}
        if self.returns is not None:
            ledger["ledger.discounted"] = self.returns.value
        return {f"env.{name}": value for name, value in self.env.state().items()} | ledger | self._policy.state()

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        env = {name.removeprefix("env."): value for name, value in state.items() if name.startswith("env.")}
        self._observation.copy_(self.env.load(env))
        if self._restarts:
            # New episodes begin everywhere: neither returns nor recurrent state of the lost ones belong to them.
            state = {name: torch.zeros_like(value) for name, value in state.items()}
        self.ledger.open_return.copy_(state["ledger.return"])
        self.ledger.open_length.copy_(state["ledger.length"])
        if self.returns is not None:
            self.returns.value.copy_(state["ledger.discounted"])
        self._policy.load(state)


def collect(
    collector: Collector,
    update: int,
    teacher: Teacher | None = None,
    safe_point: Callable[[str], object] = lambda part: None,
) -> list[Stats]:
    """Fill the rollout, with the teacher's actions if one is given; returns each cohort's statistics.

    Advantages come with `estimate`, once the scale of the rewards is known.
    """
    collector.begin(update)
    for step in range(len(collector.rollout.reward)):
        safe_point("acting")
        collector.advance(step, teacher)
    return collector.report()
