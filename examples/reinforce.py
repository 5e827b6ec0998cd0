"""An algorithm of your own in one file: REINFORCE with a value baseline, for any problem with environments.

    lockstep train corridor:Corridor --preset debug --algorithm reinforce:Reinforce
    lockstep verify corridor:Corridor --algorithm reinforce:Reinforce --ranks 1,2

T: steps of an update, E: environments of a cohort.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

import lockstep
from lockstep.compute.lane_states import cut, joined
from lockstep.compute.optimizer import Optimizer
from lockstep.compute.precision import Precision
from lockstep.config.fields import Range
from lockstep.distributed.replicas import replicate
from lockstep.errors import UserError
from lockstep.reporting.evaluation import Evaluation
from lockstep.reporting.metrics import Stat, Stats
from lockstep.rl.evaluation import evaluate
from lockstep.rl.network_settings import MLPSettings
from lockstep.rl.player import PolicyPlayer
from lockstep.run.gradient_steps import GradientSteps
from lockstep.run.learner import Learner
from lockstep.storage.checkpoint import Snapshot


@dataclass(frozen=True, kw_only=True)
class ReinforceSettings(lockstep.AlgorithmSettings):
    """REINFORCE: how experience is gathered and learned from; sizes are over all ranks."""

    total_timesteps: Annotated[int, Range(at_least=1)] = 20 * 512
    """Environment steps to train for."""
    n_envs: Annotated[int, Range(at_least=1)] = 16
    """Environments."""
    n_steps: Annotated[int, Range(at_least=1)] = 32
    """Steps of each environment in an update."""
    learning_rate: Annotated[float, Range(above=0, at_most=1)] = 3e-3
    """Adam's step size."""
    gamma: Annotated[float, Range(at_least=0, at_most=1)] = 0.97
    """How much the next step's return counts."""

    def lane_units(self) -> int:
        """Lanes share the environments out."""
        return self.n_envs

    def check(self, config: Any) -> None:
        """Refuse what lanes cannot share out evenly."""
        if self.n_envs % config.effective_lanes:
            raise UserError(
                f"n_envs {self.n_envs} must be a multiple of the run's {config.effective_lanes} lanes; change one"
            )


@dataclass
class Batch:
    """The steps of a cohort, T and E as one axis."""

    observation: Tensor
    action: Tensor
    earned: Tensor
    share: float
    """1 / steps of all cohorts together: sums times this add up to the mean over the world."""


class ReinforceLoss(nn.Module):
    """The forward that replicas watch: its gradient is what is averaged over all ranks."""

    def __init__(self, network: nn.Module, actions: Any) -> None:
        super().__init__()
        self.network, self._actions = network, actions

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The cohort's share of the global loss, and its share of what is worth watching."""
        outputs, value = self.network(batch.observation)
        advantage = batch.earned - value.detach()
        policy = -(self._actions.of(outputs).log_probability(batch.action) * advantage).sum() * batch.share
        error = (batch.earned - value).square().sum() * batch.share
        return policy + 0.5 * error, {"policy_loss": policy.detach(), "value_loss": error.detach()}


class ReinforceLearner(Learner):
    """Every cohort acts, then the world makes one gradient step."""

    def __init__(self, config: Any, world: lockstep.World, problem: lockstep.EnvProblem, network: nn.Module) -> None:
        settings = config.algorithm
        self.model = network.to(world.device)
        self.total_steps = settings.total_timesteps
        self._settings, self._run, self._world, self._problem = settings, config.run, world, problem
        self._actions = problem.action_family
        self._precision = Precision(config.run.precision, world.device)
        self._optimizer = Optimizer(dict(self.model.named_parameters()), eps=1e-5, max_norm=1.0)
        self._replica = replicate(ReinforceLoss(self.model, self._actions), world, self._precision, None)
        width = settings.n_envs // world.lanes.total
        # A cohort is all lanes of this rank in fast, one lane in exact. Environments are numbered over the whole run.
        numbers = [torch.arange(c.start * width, c.stop * width, device=world.device) for c in world.lanes.cohorts]
        self._index = numbers
        self._envs = [problem.environments(index, config.run.seed) for index in numbers]
        self._observation = [env.reset() for env in self._envs]

    def step(self) -> list[Stats]:
        """Act for n_steps everywhere, then make one gradient step. Called by every rank."""
        batches, reports = [], []
        for cohort in range(len(self._envs)):
            batch, rewards = self._act(cohort)
            batches.append([batch])
            reports.append({"rollout/reward_mean": Stat.of(rewards)})
        learned = GradientSteps(self._world)
        self._optimizer.set_rate(self._settings.learning_rate)
        learned.add(self._replica.backward(batches))
        learned.moved(*self._optimizer.step())
        learned.refuse_non_finite(self._run.nonfinite, f"update {self.updates}", "--learning-rate")
        learned.report(reports)
        self.updates += 1
        self.steps += self._settings.n_envs * self._settings.n_steps
        return reports

    @torch.no_grad()
    def _act(self, cohort: int) -> tuple[Batch, Tensor]:
        env, settings, rows = self._envs[cohort], self._settings, []
        clock = self.updates * settings.n_steps + torch.arange(settings.n_steps, device=self._world.device)
        # By environment and step, so that a draw is the same on whichever rank it is made.
        noise = self._actions.noise(self._run.seed, self._index[cohort], clock)
        for time in range(settings.n_steps):
            observation = self._observation[cohort]
            action = self._actions.of(self.model(observation)[0]).draw(noise[time])
            done = env.step(action)
            rows.append((observation, action, done.reward, done.terminated | done.truncated))
            self._observation[cohort] = done.observation
        observation, action, reward, ended = (torch.stack(column) for column in zip(*rows, strict=True))
        earned, following = torch.empty_like(reward), self.model(self._observation[cohort])[1]
        for time in reversed(range(settings.n_steps)):
            following = reward[time] + settings.gamma * following * ~ended[time]
            earned[time] = following
        share = 1.0 / (settings.n_envs * settings.n_steps)
        return Batch(observation.flatten(0, 1), action.flatten(0, 1), earned.flatten(), share), reward.flatten()

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Greedy episodes, shared out over lanes. Called by every rank."""

        def greedy(observation: Tensor, _: Any) -> Tensor:
            return self._actions.mode(self.model(observation)[0])

        tag = self._problem.name
        return evaluate(
            self._world, lambda index: self._problem.test_environments(index, seed), greedy, episodes, seed, tag
        )

    def player(self, seed: int) -> PolicyPlayer:
        """The model as a player."""
        return PolicyPlayer(self.model, self._actions, self._precision, self._world.device, seed)

    def done(self) -> bool:
        """Whether the next update would go beyond the run's steps."""
        return self.steps + self._settings.n_envs * self._settings.n_steps > self.total_steps

    def state(self) -> Snapshot:
        """Everything needed to continue; lanes are cut out of their cohorts. Called by every rank."""
        lanes: dict[int, dict[str, Tensor]] = {}
        for cohort, env in zip(self._world.lanes.cohorts, self._envs, strict=True):
            lanes |= cut(cohort, env.state())
        counters = {"updates": self.updates, "steps": self.steps, "precision": self._precision.state()}
        return Snapshot(dict(self.model.state_dict()), self._optimizer.state(), counters, lanes)

    def outline(self, counters: Mapping[str, Any]) -> Snapshot:
        """Names, shapes and types of a state: Adam has moments from its first step on."""
        return replace(self.state(), optimizer=self._optimizer.outline() if counters["updates"] else {})

    def load(self, snapshot: Snapshot) -> None:
        """Continue from a state saved by any number of ranks. Called by every rank."""
        self.model.load_state_dict(snapshot.model)
        self._optimizer.load(snapshot.optimizer)
        self.updates, self.steps = snapshot.state["updates"], snapshot.state["steps"]
        self._precision.load(snapshot.state["precision"])
        for number, (cohort, env) in enumerate(zip(self._world.lanes.cohorts, self._envs, strict=True)):
            self._observation[number] = env.load(joined(cohort, snapshot.lanes))


class Reinforce(lockstep.Algorithm):
    """The policy gradient in its plainest form."""

    name = "reinforce"
    summary = "REINFORCE with a value baseline"
    settings: ClassVar[type[lockstep.AlgorithmSettings]] = ReinforceSettings
    networks: ClassVar = {"mlp": MLPSettings}
    takes = lockstep.EnvProblem

    def learner(
        self, config: Any, world: lockstep.World, problem: lockstep.EnvProblem, network: nn.Module
    ) -> ReinforceLearner:
        """REINFORCE on a problem. Called by every rank."""
        return ReinforceLearner(config, world, problem, network)
