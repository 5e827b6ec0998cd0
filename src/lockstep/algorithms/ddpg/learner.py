"""DDPG on any number of ranks. C: cohorts, L: lanes of a rank, U: gradient updates of a round, B: samples of a lane."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.algorithms.ddpg.actions import ActionVectors
from lockstep.algorithms.ddpg.collector import Collector
from lockstep.algorithms.ddpg.losses import ActorLoss, Batch, CriticLoss
from lockstep.algorithms.ddpg.model import DDPGModel, action_vectors
from lockstep.algorithms.ddpg.networks import TeamNetworks
from lockstep.algorithms.ddpg.settings import DDPGConfig
from lockstep.compute.graphs import Accelerator
from lockstep.compute.optimizer import Optimizer, scheduled_rate
from lockstep.compute.precision import Precision
from lockstep.compute.stopwatch import Stopwatch
from lockstep.distributed.replicas import replicate
from lockstep.distributed.world import World
from lockstep.envs.split_env import SplitTeamEnv, in_cohorts
from lockstep.envs.vector_env import BatchedEnv
from lockstep.reporting.evaluation import Evaluation
from lockstep.reporting.metrics import Stats
from lockstep.rl.distributions import ActionFamily
from lockstep.rl.evaluation import HOSTED_AT_ONCE, evaluate
from lockstep.rl.player import PolicyPlayer
from lockstep.rl.problem import TeamProblem
from lockstep.rl.programs import policy_program
from lockstep.run.gradient_steps import GradientSteps
from lockstep.run.learner import Learner
from lockstep.storage.checkpoint import Snapshot
from lockstep.storage.program_file import Program


class DDPGLearner(Learner):
    """Each rank acts and fills its replay buffers; after every update_interval steps all learn together."""

    def __init__(
        self,
        config: DDPGConfig,
        world: World,
        problem: TeamProblem,
        network: TeamNetworks,
        *,
        precise_timing: bool = False,
    ) -> None:
        settings, run = config.algorithm, config.run
        vectors = action_vectors(settings, problem)
        self._model = DDPGModel(network, vectors, problem.alone).to(world.device)
        self.model = self._model
        self.total_steps = settings.total_timesteps
        self.observation_shape = problem.shown_shape
        self._vectors = vectors
        self._settings, self._run = settings, run
        self._world = world
        self._problem = problem
        self._precision = Precision(run.precision, world.device)
        self._watch = Stopwatch(world.device, precise_timing)
        accelerator = Accelerator(world.device, run.compile, exact=world.sync == "exact")
        self._actor_optimizer = self._optimizer_of("actor")
        self._critic_optimizer = self._optimizer_of("critic")
        # Steps of environments on the host cannot be part of a CUDA graph.
        self._acting = Accelerator(world.device, "none", exact=True) if problem.hosted else accelerator
        # One compiled actor, for acting and for its loss. Evaluations use the model itself.
        policy = accelerator.compile(self._model.actor)
        self._envs_per_lane = settings.n_envs // world.lanes.total
        self._collector = self._open_collector(policy, vectors)
        # (C, S) positions of each cohort's samples, and one micro-batch that reads them. Allocated once and filled in
        # place: recorded graphs read fixed addresses.
        shape = (len(world.lanes.cohorts), settings.batch_size * len(world.lanes.cohorts[0]) // world.lanes.total)
        self._positions = torch.zeros(shape, dtype=torch.int64, device=world.device)
        self._share = self._empty_share()
        ragged = problem.ragged
        self._batches = [[Batch(self._collector.memory, row, self._share, ragged)] for row in self._positions]
        recorder, one_pass = accelerator.record if accelerator.records else None, not accelerator.compiles
        critic_loss = CriticLoss(
            accelerator.compile(self._model.critic),
            self._model.target_actor,
            self._model.target_critic,
            vectors,
            settings.gamma,
            settings.n_step,
        )
        actor_loss = ActorLoss(policy, self._model.critic, vectors, settings.entropy_coef)
        self._critic_replica = replicate(critic_loss, world, self._precision, recorder, one_pass=one_pass)
        self._actor_replica = replicate(actor_loss, world, self._precision, recorder, one_pass=one_pass)
        self._step_critic = accelerator.record(self._optimize_critic)
        self._step_actor = accelerator.record(self._optimize_actor)

    def step(self) -> list[Stats]:
        """One round: n_steps of every environment, with the gradient updates in between. Called by every rank."""
        settings = self._settings
        rates = self._set_rates()
        # A function of the steps over all ranks, so exploration does not depend on the world size.
        epsilon = [settings.epsilon_after(self.steps + time * settings.n_envs) for time in range(settings.n_steps)]
        self._collector.begin(self.steps, self._rows_written(), epsilon)
        words, learned = self._sampling_words(), GradientSteps(self._world, "critic", "actor")
        for _ in range(settings.n_steps // settings.update_interval):
            self.safe_point("acting")
            self._collector.advance(settings.update_interval)
            self.steps += settings.n_envs * settings.update_interval
            # Steps are counted over all ranks, so all ranks start learning at once and make the same number of updates;
            # otherwise their all-reduces would not match.
            if self.steps >= settings.first_update:
                with self._watch.part("learning"):
                    self._learn(words, learned)
        reports = self._collector.report()
        # Once a round, because reading the flags makes the host wait for the device.
        learned.refuse_non_finite(self._run.nonfinite, f"round {self.updates}", "--a-lr and --c-lr")
        learned.report(reports, gradient_updates=float(learned.count), epsilon=epsilon[0], **rates)
        self.updates += 1
        return reports

    def begin_with(self, weights: Mapping[str, Tensor]) -> None:
        """Take over weights of another model; the opponent pool, filled with the untrained actor, follows."""
        super().begin_with(weights)
        if self._problem.opponent_pool is not None:
            self._problem.opponent_pool.reset(self._model.actor)

    def done(self) -> bool:
        """Whether the next round would exceed total_timesteps."""
        return self.steps + self._settings.round_size > self._settings.total_timesteps

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Evaluate the greedy policy, episodes distributed over lanes. Called by every rank."""

        def greedy(observation: Tensor, _: BatchedEnv) -> Tensor:
            with self._precision.autocast():
                return self._vectors.mode(self.model(observation.to(self._world.device))[0])

        def make_env(index: Tensor) -> BatchedEnv:
            return self._problem.make_test(index, seed)

        at_once = HOSTED_AT_ONCE if self._problem.hosted else None
        name, record, safe_point = self._problem.name, self._acting.record, partial(self.safe_point, "evaluating")
        return evaluate(self._world, make_env, greedy, episodes, seed, name, record, at_once, safe_point)

    def player(self, seed: int) -> PolicyPlayer:
        """The model as a player. Called by a single rank."""
        return PolicyPlayer(self.model, self._family(), self._precision, self._world.device, seed)

    def program(self) -> Program:
        """The actors as a function of tensors. Called by a single rank."""
        return policy_program(self.model, self._vectors.mode, self._problem, value=False)

    def timings(self) -> dict[str, float]:
        """Seconds that this rank spent in each part since the last call."""
        return self._watch.take()

    def _family(self) -> ActionFamily:
        return self._vectors.family(0 if self._problem.alone else self._problem.observation_shape[0])

    def _rows_written(self) -> int:
        # Derived from the steps, so that there is no second counter to save; each row is one step of every environment.
        return self.steps // self._settings.n_envs

    def _set_rates(self) -> dict[str, float]:
        """Set the learning rates of this round; returns them as metrics."""
        settings, rates = self._settings, {}
        for name, rate, optimizer in (
            ("actor", settings.a_lr, self._actor_optimizer),
            ("critic", settings.c_lr, self._critic_optimizer),
        ):
            # Constant within a round, whatever the number of its gradient updates.
            now = scheduled_rate(
                rate,
                settings.lr_schedule,
                self.steps,
                settings.total_timesteps,
                self._run.lr_warmup,
                settings.round_size,
            )
            optimizer.set_rate(now)
            rates[f"learning_rate_{name}"] = now
        return rates

    def _sampling_words(self) -> Tensor:
        """The random words (U, L, B) with which this round's gradient updates choose their samples."""
        settings = self._settings
        # For the whole round in one kernel. In the first rounds, before learning starts, some stay unused.
        most = settings.n_steps // settings.update_interval * settings.updates_per_interval
        numbers = torch.arange(self.gradient_updates, self.gradient_updates + most, device=self._world.device)
        samples = settings.batch_size // self._world.lanes.total
        return self._collector.memory.random_words(numbers, samples)

    def _learn(self, words: Tensor, learned: GradientSteps) -> None:
        """The gradient updates of one interval. Called by every rank."""
        settings, first, written = self._settings, learned.count, self._rows_written()
        # Positions for the whole interval: the replay buffer does not change between its gradient updates.
        chosen = words[first : first + settings.updates_per_interval]
        positions = self._collector.memory.sample_positions(chosen, written, settings.n_step)
        shares = self._shares(positions)
        pool, pool_update_every = self._problem.opponent_pool, self._problem.pool_update_every
        for number in range(settings.updates_per_interval):
            self.safe_point("learning")
            self._positions.copy_(positions[number].view_as(self._positions))
            if shares is not None and isinstance(self._share, Tensor):
                self._share.copy_(shares[number])
            # The critic first: the actor then follows the gradient of the updated critic.
            learned.add(self._critic_replica.backward(self._batches))
            norm, finite = self._step_critic()
            learned.moved(norm, finite, "critic")
            learned.add(self._actor_replica.backward(self._batches))
            norm, finite = self._step_actor()
            learned.moved(norm, finite, "actor")
            self.gradient_updates += 1
            if pool is not None and self.gradient_updates % pool_update_every == 0:
                pool.add(self._model.actor, self.gradient_updates // pool_update_every)

    def _shares(self, positions: Tensor) -> Tensor | None:
        """(U,) one over the agents that took part in each update's steps, if they may leave. Called by every rank."""
        if not self._problem.ragged:
            return None
        cohorts = positions.chunk(len(self._positions), dim=1)
        acted = [self._collector.memory.read("acted", chosen).flatten(1).sum(1) for chosen in cohorts]
        return 1.0 / self._world.total(acted).clamp(min=1)

    def _optimize_critic(self) -> tuple[Tensor, Tensor]:
        # A step with a gradient that is not finite is skipped; fp16's loss scale adapts to it.
        norm, finite = self._critic_optimizer.step()
        self._precision.learn_from(finite)
        return norm, finite

    def _optimize_actor(self) -> tuple[Tensor, Tensor]:
        """The second half of a gradient update, after which the targets follow both networks."""
        norm, finite = self._actor_optimizer.step()
        self._precision.learn_from(finite)
        self._model.follow(self._settings.tau)
        return norm, finite

    def _optimizer_of(self, name: str) -> Optimizer:
        named = self.model.get_submodule(name).named_parameters(prefix=name)
        return Optimizer(dict(named), self._settings.adam_eps, self._settings.max_grad_norm)

    def _open_collector(self, policy: nn.Module, vectors: ActionVectors) -> Collector:
        settings, seed, width, lanes = self._settings, self._run.seed, self._envs_per_lane, self._world.lanes.mine
        # Environments are numbered over the whole run: lane l has the numbers from l * width on.
        index = torch.arange(lanes.start * width, lanes.stop * width, device=self._world.device)
        cohorts = len(self._world.lanes.cohorts)
        return Collector(
            in_cohorts(
                lambda part: self._problem.make_env(part, seed),
                index,
                cohorts,
                self._problem.batch_invariant,
                SplitTeamEnv,
            ),
            index,
            lanes,
            policy,
            vectors,
            cohorts=cohorts,
            steps=settings.n_steps,
            rows=settings.memory_rows,
            observation_dtype=torch.float16 if settings.memory_format == "fp16" else torch.float32,
            tag=self._problem.name,
            seed=seed,
            precision=self._precision,
            accelerator=self._acting,
            watch=self._watch,
            ragged=self._problem.ragged,
            restarts=self._problem.restarts,
        )

    def _empty_share(self) -> float | Tensor:
        """What each sample counts in the world's mean."""
        if self._problem.ragged:
            # Written before each gradient update: the number of agents that took part differs.
            return torch.zeros((), device=self._world.device)
        return 1.0 / (self._settings.batch_size * self._problem.observation_shape[0])

    def _pool_state(self) -> dict[str, Tensor]:
        pool = self._problem.opponent_pool
        return {} if pool is None else pool.state()

    def state(self) -> Snapshot:
        """Everything needed to resume, with each lane's replay buffer. Called by every rank."""
        lanes = self._collector.state(self._rows_written())
        moments = self._actor_optimizer.state() | self._critic_optimizer.state()
        counters = {
            "updates": self.updates,
            "steps": self.steps,
            "gradient_updates": self.gradient_updates,
            "precision": self._precision.state(),
        }
        # The pool is stored with the optimizer: like the moments it is needed to resume, but not to use the model.
        return Snapshot(dict(self.model.state_dict()), moments | self._pool_state(), counters, lanes)

    def outline(self, counters: Mapping[str, Any]) -> Snapshot:
        """The names, shapes and types of a state with these counters."""
        # By the counters of the stored state, not by this learner's, which may be new.
        written = counters["steps"] // self._settings.n_envs
        moments = self._actor_optimizer.outline() | self._critic_optimizer.outline()
        # Adam has no moments before the first gradient update.
        return replace(
            self.state(),
            optimizer=(moments if counters["gradient_updates"] else {}) | self._pool_state(),
            lanes=self._collector.state(written),
        )

    def load(self, snapshot: Snapshot) -> None:
        """Restore a state saved by any number of ranks. Called by every rank."""
        self._problem.refuse_inexact_resume(self._world.sync)
        self.model.load_state_dict(snapshot.model)
        self._actor_optimizer.load(snapshot.optimizer)
        self._critic_optimizer.load(snapshot.optimizer)
        if self._problem.opponent_pool is not None:
            self._problem.opponent_pool.load(snapshot.optimizer)
        self.updates, self.steps = snapshot.state["updates"], snapshot.state["steps"]
        self.gradient_updates = snapshot.state["gradient_updates"]
        self._precision.load(snapshot.state["precision"])
        # After the counters, on which the number of rows depends.
        self._collector.load(snapshot.lanes, self._rows_written())
