"""PPO on any number of ranks. L: lanes of a rank, M: minibatches of an epoch, B: samples of a lane in a minibatch.

A recurrent network learns from whole sequences of T steps, and B counts sequences. For other networks T = 1.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from lockstep.algorithms.ppo.collector import Collector, collect
from lockstep.algorithms.ppo.losses import CloningLoss, Minibatch, PPOLoss, Sequences, steps_of
from lockstep.algorithms.ppo.settings import PPOSettings
from lockstep.compute import random
from lockstep.compute.dropout import counted_dropout
from lockstep.compute.graphs import Accelerator
from lockstep.compute.lane_states import cut, joined
from lockstep.compute.moments import mean_and_deviation, moment_sums
from lockstep.compute.optimizer import Optimizer, scheduled_rate
from lockstep.compute.precision import Precision
from lockstep.compute.stopwatch import Stopwatch
from lockstep.config.config import Config, NetworkSettings, WorkloadSettings
from lockstep.distributed.replicas import Replica, replicate
from lockstep.distributed.world import World
from lockstep.envs.split_env import SplitEnv, in_cohorts
from lockstep.envs.vector_env import BatchedEnv
from lockstep.reporting.evaluation import Evaluation
from lockstep.reporting.metrics import Stats
from lockstep.rl.evaluation import HOSTED_AT_ONCE, Act, evaluate
from lockstep.rl.normalisers import RewardScale, normaliser_of
from lockstep.rl.own_network import check_outputs
from lockstep.rl.player import PolicyPlayer
from lockstep.rl.problem import EnvProblem
from lockstep.rl.programs import policy_program
from lockstep.rl.stateful_policy import StatefulPolicy
from lockstep.run.gradient_steps import GradientSteps
from lockstep.run.learner import Learner
from lockstep.storage.checkpoint import Snapshot
from lockstep.storage.program_file import Program

PPOConfig = Config[PPOSettings, WorkloadSettings, NetworkSettings]


class PPOLearner(Learner):
    """Proximal policy optimisation: every rank fills its rollout, then all learn from minibatches together."""

    def __init__(
        self,
        config: PPOConfig,
        world: World,
        problem: EnvProblem,
        network: nn.Module,
        *,
        precise_timing: bool = False,
    ) -> None:
        settings, run = config.algorithm, config.run
        # In eval mode except while learning: acting and evaluating drop no units.
        self.model = network.to(world.device).eval()
        self._dropout = counted_dropout(self.model)
        self._normaliser = normaliser_of(network) if settings.normalize_observation else None
        self._reward_scale = RewardScale(world.device) if settings.normalize_reward else None
        self.total_steps = settings.total_timesteps
        self.observation_shape = problem.observation_shape
        self.data_record = problem.data
        self._settings, self._run, self._world, self._problem = settings, run, world, problem
        self._actions = problem.action_family_with(squash=settings.squash)
        self._precision = Precision(run.precision, world.device)
        self._watch = Stopwatch(world.device, precise_timing)
        self._sequence_length = settings.sequence_steps(config)
        self._optimizer = Optimizer(
            dict(self.model.named_parameters()),
            settings.adam_eps,
            settings.max_grad_norm,
            # By prefix of the parameter names.
            scales={"critic": settings.critic_rate},
        )
        self._accelerator = accelerator = Accelerator(world.device, run.compile, exact=world.sync == "exact")
        self._policy = policy = accelerator.compile(self.model)
        self._envs_per_lane = settings.n_envs // world.lanes.total
        # With a recorder the replica replays its backward pass as a CUDA graph, which DDP does not allow.
        recorder, one_pass = accelerator.record if accelerator.records else None, not accelerator.compiles
        loss = PPOLoss(
            policy,
            self._actions,
            settings.clip_range,
            settings.clip_range_vf,
            settings.ent_coef,
            settings.vf_coef,
            settings.normalize_advantage,
            problem.forecast,
        )
        self._replica = replicate(loss, world, self._precision, recorder, one_pass=one_pass)
        self._cloning: Replica | None = None
        if settings.pretrain_bc:
            cloning = CloningLoss(policy, self._actions, settings.vf_coef)
            self._cloning = replicate(cloning, world, self._precision, recorder, self._replica, one_pass=one_pass)
        self._descend = accelerator.record(self._descend_once)

    @cached_property
    def _collector(self) -> Collector:
        # Opened when it is first needed: a model that only plays or is evaluated needs none of its environments.
        collector = self._open_collector()
        if ":" in self._run.network:
            check_outputs(self._run.network, self.model, collector.observation[:2], self._problem)
        return collector

    # What minibatches read is allocated once and filled in place: recorded graphs read fixed addresses.
    @cached_property
    def _index(self) -> Tensor:
        """(C, A, S) positions of the samples of each cohort's micro-batches."""
        settings, lanes = self._settings, self._world.lanes
        samples = settings.batch_size * len(lanes.mine) // (lanes.total * settings.grad_accum * self._sequence_length)
        shape = (len(lanes.cohorts), settings.grad_accum, samples // len(lanes.cohorts))
        return torch.zeros(shape, dtype=torch.int64, device=self._world.device)

    @cached_property
    def _batches(self) -> list[list[Minibatch]]:
        """Each cohort's micro-batches, which differ in their positions alone."""
        settings, device, rollout = self._settings, self._world.device, self._collector.rollout
        columns, memory = rollout.flat(), tuple(part.flatten(0, 1) for part in rollout.memory)
        if self._dropout is not None:
            columns["word"] = torch.zeros(rollout.reward.numel(), dtype=torch.int64, device=device)
        moments = torch.zeros(2, device=device)
        # Known before each gradient step only, if steps may not be valid.
        share = torch.zeros((), device=device) if self._problem.masked else 1.0 / settings.batch_size
        sequences = Sequences(self._sequence_length, self._collector.env.count, memory) if memory else None
        return [
            [Minibatch(columns, positions, moments, share, sequences, self._dropout) for positions in cohort]
            for cohort in self._index
        ]

    def step(self) -> list[Stats]:
        """One update: act for n_steps in every environment, then learn from it. Called by every rank."""
        cloning = self.steps < self._settings.pretrain_bc
        rate = self.learning_rate()
        self._optimizer.set_rate(rate)
        teacher = self._problem.teacher if cloning else None
        reports = collect(self._collector, self.updates, teacher, self.safe_point)
        self._estimate()
        with self._watch.part("learning"):
            learned, epochs = self._learn(self._cloning if cloning and self._cloning else self._replica)
            self._observe()
        learned.refuse_non_finite(self._run.nonfinite, f"update {self.updates}", "--learning-rate")
        learned.report(reports, epochs=float(epochs), learning_rate=rate)
        self.updates += 1
        self.steps += self._settings.rollout_size
        return reports

    def learning_rate(self) -> float:
        """The learning rate of the next update: warm-up, then the schedule over the whole run."""
        settings, warmup = self._settings, self._run.lr_warmup
        total, stride = settings.total_timesteps, settings.rollout_size
        return scheduled_rate(settings.learning_rate, settings.lr_schedule, self.steps, total, warmup, stride)

    def done(self) -> bool:
        """Whether the next update would exceed total_timesteps."""
        return self.steps + self._settings.rollout_size > self._settings.total_timesteps

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Evaluate the greedy policy, episodes distributed over lanes. Called by every rank."""

        def make_env(index: Tensor) -> BatchedEnv:
            return self._problem.test_environments(index, seed)

        at_once = HOSTED_AT_ONCE if self._problem.hosted else None
        name, safe_point = self._problem.name, partial(self.safe_point, "evaluating")
        return evaluate(self._world, make_env, self.policy(), episodes, seed, name, self._record, at_once, safe_point)

    def policy(self, remembers: bool = True) -> Act:
        """The greedy policy for first episodes of environments; `remembers`: False resets its memory every step."""
        # Weak, so that finished environments, and their simulators on the host, can be freed.
        policies: WeakKeyDictionary[BatchedEnv, StatefulPolicy] = WeakKeyDictionary()

        def greedy(observation: Tensor, env: BatchedEnv) -> Tensor:
            observation = observation.to(self._world.device)
            if env not in policies:
                policies[env] = StatefulPolicy(self.model, env.count, observation.device)
            if not remembers:
                policies[env].forget()
            with self._precision.autocast():
                return self._actions.mode(policies[env].act(observation)[0])

        return greedy

    def player(self, seed: int) -> PolicyPlayer:
        """The model as a player. Called by a single rank."""
        return PolicyPlayer(self.model, self._actions, self._precision, self._world.device, seed)

    def program(self) -> Program:
        """The policy as a function of tensors. Called by a single rank."""
        return policy_program(self.model, self._actions.mode, self._problem, value=True)

    def timings(self) -> dict[str, float]:
        """Seconds that this rank spent in each part since the last call."""
        return self._watch.take()

    @property
    def _record(self) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Records steps as CUDA graphs; not those of hosted environments, which run outside the GPU."""
        return (lambda step: step) if self._problem.hosted else self._accelerator.record

    def _estimate(self) -> None:
        """Compute advantages, of rewards divided by the deviation of returns if asked for. Called by every rank."""
        if self._reward_scale is not None:
            assert self._collector.returns is not None
            self._reward_scale.update(self._world.total(self._collector.returns.sums))
        self._collector.estimate()

    def _observe(self) -> None:
        """Add the rollout to the moments of observations, now that it has been learned from. Called by every rank."""
        if self._normaliser is not None:
            cohorts = self._collector.rollout.observation.chunk(len(self._world.lanes.cohorts), dim=1)
            self._normaliser.update(self._world.total([self._normaliser.sums(part) for part in cohorts]))

    def _learn(self, replica: Replica) -> tuple[GradientSteps, int]:
        """Run the epochs over the rollout; returns gradient steps and number of epochs. Called by every rank."""
        learned, epochs = GradientSteps(self._world), 0
        self.model.train()
        for epoch, order in enumerate(self._orders()):
            self._draw_dropout(epoch)
            moments = self._advantage_moments(order)
            for number in range(moments.shape[0]):
                self.safe_point("learning")
                self._choose(order, moments, number)
                learned.add(replica.backward(self._batches))
                learned.moved(*self._descend())
            epochs += 1
            if self._too_far(learned):
                break
        self.model.eval()
        return learned, epochs

    def _draw_dropout(self, epoch: int) -> None:
        """The words of all samples in this epoch, if the network has dropout: by environment and step, not by batch."""
        if self._dropout is None:
            return
        steps = self._settings.n_steps
        clock = self.updates * steps + torch.arange(steps, device=self._world.device)
        index = self._collector.index[None, :]
        words = random.random_words(self._run.seed, "dropout", index, clock[:, None], epoch)[0]
        # All batches read the same columns.
        self._batches[0][0].rollout["word"].copy_(words.flatten())

    def _descend_once(self) -> tuple[Tensor, Tensor]:
        norm, finite = self._optimizer.step()
        self._precision.learn_from(finite)
        return norm, finite

    def _orders(self) -> Tensor:
        """(K, L, M, B) positions in the rollout for K epochs; each lane contributes equally to every minibatch."""
        # Lanes are shuffled separately, each by its own number, so a lane's minibatches do not depend on its rank.
        settings, device, length = self._settings, self._world.device, self._sequence_length
        lanes = self._world.lanes.mine
        per_lane = self._envs_per_lane * settings.n_steps // length
        lane_index = torch.arange(lanes.start, lanes.stop, device=device)
        step = self.updates * settings.n_epochs + torch.arange(settings.n_epochs, device=device)
        # For all epochs at once: on a CPU each operator costs more than the few numbers of one epoch.
        position = random.permutations(self._run.seed, "minibatch", lane_index, step[:, None, None], per_lane)
        sequence, env = position // self._envs_per_lane, position % self._envs_per_lane
        # A rollout is stored time first: position = step * width + environment.
        first_env = (lane_index - lanes.start)[:, None] * self._envs_per_lane
        width = len(lanes) * self._envs_per_lane
        samples = settings.batch_size // (self._world.lanes.total * length)
        return (sequence * length * width + first_env + env).view(settings.n_epochs, len(lanes), -1, samples)

    def _advantage_moments(self, order: Tensor) -> Tensor:
        """(M, 3) mean, deviation and count of each minibatch's advantages over all ranks. Called by every rank."""
        parts, rollout = [], self._collector.rollout
        for lanes in order.chunk(len(self._world.lanes.cohorts)):
            # (T, L, M, B) -> (M, L, B, T): one row of samples for each minibatch.
            samples = steps_of(lanes, self._sequence_length, self._collector.env.count).permute(2, 1, 3, 0)
            valid = None if rollout.valid is None else rollout.valid.flatten()[samples].flatten(1)
            parts.append(moment_sums(rollout.advantage.flatten()[samples].flatten(1), valid))
        sums = self._world.total(parts)
        return torch.cat((mean_and_deviation(sums), sums[:, 2:].to(torch.float32)), 1)

    def _choose(self, order: Tensor, moments: Tensor, number: int) -> None:
        """Point the micro-batches at minibatch `number`."""
        first, (cohorts, micro_batches, _) = self._batches[0][0], self._index.shape
        # (L, B) -> (C, lanes of a cohort, A, samples of a lane) -> (C, A, S).
        lanes = order[:, number].unflatten(1, (micro_batches, -1)).unflatten(0, (cohorts, -1))
        self._index.copy_(lanes.transpose(1, 2).flatten(2))
        # These are shared by all batches.
        first.moments.copy_(moments[number, :2])
        if isinstance(first.share, Tensor):
            first.share.copy_(1.0 / moments[number, 2].clamp(min=1.0))

    def _too_far(self, learned: GradientSteps) -> bool:
        """Whether the policy's KL divergence exceeds the limit, decided by all ranks together. Called by every rank."""
        limit = self._settings.target_kl
        if limit is None or "approx_kl" not in learned.sums[0]:
            return False
        # 1.5: the usual margin of PPO implementations, also that of Stable-Baselines3.
        divergence = self._world.total([total["approx_kl"] for total in learned.sums]) / learned.count
        return bool(self._world.agree(int(float(divergence) > 1.5 * limit)))

    def _open_collector(self) -> Collector:
        settings, seed, lanes = self._settings, self._run.seed, self._world.lanes
        first, last = lanes.mine.start * self._envs_per_lane, lanes.mine.stop * self._envs_per_lane
        index, cohorts = torch.arange(first, last, device=self._world.device), len(lanes.cohorts)
        make = partial(self._problem.environments, seed=seed)
        return Collector(
            in_cohorts(make, index, cohorts, self._problem.batch_invariant, SplitEnv),
            index,
            settings.n_steps,
            self._policy,
            self._actions,
            cohorts=cohorts,
            sequence_length=self._sequence_length,
            tag=self._problem.name,
            seed=seed,
            gamma=settings.gamma,
            gae_lambda=settings.gae_lambda,
            precision=self._precision,
            record=self._record,
            watch=self._watch,
            describe=self._problem.describe,
            reward_scale=self._reward_scale,
            masked=self._problem.masked,
            restarts=self._problem.restarts,
            compiled=self._accelerator.compiles,
        )

    def state(self) -> Snapshot:
        """Everything needed to resume, split into lanes. Called by every rank."""
        lanes = cut(self._world.lanes.mine, self._collector.state())
        counters = {"updates": self.updates, "steps": self.steps, "precision": self._precision.state()}
        if self._reward_scale is not None:
            counters["returns"] = self._reward_scale.state()
        return Snapshot(dict(self.model.state_dict()), self._optimizer.state(), counters, lanes)

    def outline(self, counters: Mapping[str, Any]) -> Snapshot:
        """The names, shapes and types of a state with these counters."""
        # Adam has no moments before the first update.
        return replace(self.state(), optimizer=self._optimizer.outline() if counters["updates"] else {})

    def load(self, snapshot: Snapshot) -> None:
        """Restore a state saved by any number of ranks. Called by every rank."""
        self._problem.refuse_inexact_resume(self._world.sync)
        self.model.load_state_dict(snapshot.model)
        self._optimizer.load(snapshot.optimizer)
        self.updates, self.steps = snapshot.state["updates"], snapshot.state["steps"]
        self._precision.load(snapshot.state["precision"])
        if self._reward_scale is not None:
            self._reward_scale.load(snapshot.state["returns"])
        self._collector.load(joined(self._world.lanes.mine, snapshot.lanes))
