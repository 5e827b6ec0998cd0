"""DDPG on any number of ranks. L: lanes of a cohort, U: gradient updates of an interval, B: samples of a lane."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.algorithms.ddpg.actions import Vectors
from lockstep.algorithms.ddpg.collector import Collector, TeamEnv
from lockstep.algorithms.ddpg.config import DDPGConfig
from lockstep.algorithms.ddpg.losses import ActorLoss, Batch, CriticLoss
from lockstep.algorithms.ddpg.model import DDPGModel, vectors_of
from lockstep.compute.graphs import Accelerator
from lockstep.compute.optimizer import Optimizer, scheduled_rate
from lockstep.compute.precision import Precision
from lockstep.compute.stopwatch import Stopwatch
from lockstep.distributed.replicas import Metrics, replicate
from lockstep.distributed.world import World
from lockstep.envs.vector_env import VectorEnv
from lockstep.errors import RunFailed
from lockstep.reporting.evaluation import Evaluation
from lockstep.reporting.metrics import Stat, Stats
from lockstep.rl.evaluation import evaluate
from lockstep.rl.target_networks import PastSelves
from lockstep.storage.checkpoint import Snapshot

MakeEnv = Callable[[Tensor, int], TeamEnv]
MakeTest = Callable[[Tensor, int], VectorEnv]


class DDPGLearner:
    """Every cohort acts and remembers; after every interval the world learns from what it remembers."""

    def __init__(
        self,
        config: DDPGConfig,
        world: World,
        actor: nn.Module,
        critic: nn.Module,
        make_env: MakeEnv,
        make_test: MakeTest,
        *,
        name: str,
        action_count: int,
        past: PastSelves | None = None,
        past_every: int = 0,
        first_weights: Callable[[], Mapping[str, Tensor]] | None = None,
        precise_timing: bool = False,
    ) -> None:
        """`make_test`: environments for an evaluation, with one reward for all agents.

        `past` is given the actor as it is after every `past_every` gradient updates; `first_weights` are read when a
        run makes its first step.
        """
        vectors = vectors_of(config, action_count)
        self.model = DDPGModel(actor, critic, vectors).to(world.device)
        self.updates = 0
        self.steps = 0
        self.gradient_updates = 0
        self.total_steps = config.total_timesteps
        self._config, self._world, self._name = config, world, name
        self._make_test = make_test
        self._past, self._past_every = past, past_every
        self._first_weights = first_weights
        self._precision = Precision(config.precision, world.device)
        self._watch = Stopwatch(world.device, precise_timing)
        self._accelerator = accelerator = Accelerator(world.device, config.compile, exact=world.sync == "exact")
        self._actor_optimizer = self._optimizer_of("actor")
        self._critic_optimizer = self._optimizer_of("critic")
        policy = accelerator.compile(self.model.actor)
        self._width = config.n_envs // world.lanes.total
        self._collectors = [self._collector(lanes, make_env, policy, vectors) for lanes in world.lanes.cohorts]
        self._batches = [[self._empty_batch(collector)] for collector in self._collectors]
        recorder = accelerator.record if accelerator.records else None
        critic_loss = CriticLoss(
            accelerator.compile(self.model.critic),
            self.model.target_actor,
            self.model.target_critic,
            vectors,
            config.gamma,
            config.n_step,
        )
        actor_loss = ActorLoss(policy, self.model.critic, vectors, config.entropy_coef)
        self._critic_replica = replicate(critic_loss, world, self._precision, recorder)
        self._actor_replica = replicate(actor_loss, world, self._precision, recorder)
        self._move_critic = accelerator.record(self._move_critic_once)
        self._move_actor = accelerator.record(self._move_actor_once)

    def step(self) -> list[Stats]:
        """One round: act for n_steps everywhere and learn as often as belongs to that. Called by every rank."""
        config = self._config
        if self.steps == 0:
            self._take_first_weights()
        rates = self._set_rates()
        epsilon = [config.epsilon_after(self.steps + time * config.n_envs) for time in range(config.n_steps)]
        for collector in self._collectors:
            collector.begin(self.steps, self._rows_written(), epsilon)
        lots, learned = self._lots(), _Learned(len(self._collectors))
        for _ in range(config.n_steps // config.update_interval):
            for collector in self._collectors:
                collector.advance(config.update_interval)
            self.steps += config.n_envs * config.update_interval
            # Counted over all ranks, so every rank begins, and learns, as often as every other.
            if self.steps >= config.first_update:
                with self._watch.part("learning"):
                    self._learn(lots, learned)
        reports = [collector.report() for collector in self._collectors]
        self._refuse_if_asked(learned)
        self._add_shares(reports, learned.shares())
        reports[0] |= {f"train/{name}": Stat.of([value]) for name, value in learned.common().items()}
        reports[0] |= {f"train/{name}": Stat.of([value]) for name, value in (rates | {"epsilon": epsilon[0]}).items()}
        self.updates += 1
        return reports

    def _take_first_weights(self) -> None:
        if self._first_weights is None:
            return
        self.model.load_state_dict(dict(self._first_weights()))
        if self._past is not None:
            self._past.begin_anew(self.model.actor)

    def done(self) -> bool:
        """Whether the next round would go beyond the run's steps."""
        return self.steps + self._config.round_size > self._config.total_timesteps

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Episodes with the most probable actions, shared out over lanes. Called by every rank."""

        def greedy(observation: Tensor, _: VectorEnv) -> Tensor:
            with self._precision.autocast():
                return self.model(observation)[0].argmax(-1)

        def make_env(index: Tensor) -> VectorEnv:
            return self._make_test(index, seed)

        return evaluate(self._world, make_env, greedy, episodes, seed, self._name, self._accelerator.record)

    def timings(self) -> dict[str, float]:
        """Seconds of this rank since the last call, by part."""
        return self._watch.take()

    def _rows_written(self) -> int:
        return self.steps // self._config.n_envs

    def _set_rates(self) -> dict[str, float]:
        """Learning rates of the round."""
        c = self._config
        rates = {}
        for name, rate, optimizer in (
            ("actor", c.a_lr, self._actor_optimizer),
            ("critic", c.c_lr, self._critic_optimizer),
        ):
            now = scheduled_rate(rate, c.lr_schedule, self.steps, c.total_timesteps, c.lr_warmup, c.round_size)
            optimizer.set_rate(now)
            rates[f"learning_rate_{name}"] = now
        return rates

    def _lots(self) -> list[Tensor]:
        """For each cohort, what the gradient updates of this round draw their samples with."""
        config = self._config
        most = config.n_steps // config.update_interval * config.updates_per_interval
        numbers = torch.arange(self.gradient_updates, self.gradient_updates + most, device=self._world.device)
        samples = config.batch_size // self._world.lanes.total
        return [collector.memory.lots(numbers, samples) for collector in self._collectors]

    def _learn(self, lots: list[Tensor], learned: "_Learned") -> None:
        """The gradient updates of one interval. Called by every rank."""
        config, first, written = self._config, learned.updates, self._rows_written()
        drawn = [
            collector.memory.draw(part[first : first + config.updates_per_interval], written, config.n_step)
            for collector, part in zip(self._collectors, lots, strict=True)
        ]
        for number in range(config.updates_per_interval):
            for (batch,), places in zip(self._batches, drawn, strict=True):
                batch.place.copy_(places[number].flatten())
            learned.add(self._critic_replica.backward(self._batches))
            learned.moved("critic", *self._move_critic())
            learned.add(self._actor_replica.backward(self._batches))
            learned.moved("actor", *self._move_actor())
            self.gradient_updates += 1
            if self._past is not None and self.gradient_updates % self._past_every == 0:
                self._past.remember(self.model.actor, self.gradient_updates // self._past_every)

    def _move_critic_once(self) -> tuple[Tensor, Tensor]:
        norm, finite = self._critic_optimizer.step()
        self._precision.learn_from(finite)
        return norm, finite

    def _move_actor_once(self) -> tuple[Tensor, Tensor]:
        """The last act of an update: the targets follow both networks."""
        norm, finite = self._actor_optimizer.step()
        self._precision.learn_from(finite)
        self.model.follow(self._config.tau)
        return norm, finite

    def _add_shares(self, reports: list[Stats], shares: list[dict[str, float]]) -> None:
        for report, lanes, metrics in zip(reports, self._world.lanes.cohorts, shares, strict=True):
            # Shares add up to the global mean once their weights do.
            weight = len(lanes) / self._world.lanes.total
            report |= {f"train/{name}": Stat(v, weight, v / weight, v / weight) for name, v in metrics.items()}

    def _refuse_if_asked(self, learned: "_Learned") -> None:
        """Stop the world when a gradient was not finite and the run asks for that. Called by every rank."""
        bad = learned.skipped()
        if self._world.agree(bad) and self._config.nonfinite == "stop":
            raise RunFailed(
                f"round {self.updates}: {bad} gradient step(s) were not finite; the weights were left as they were; "
                "lower --a-lr and --c-lr, or go on with --nonfinite skip"
            )

    def _optimizer_of(self, name: str) -> Optimizer:
        named = self.model.get_submodule(name).named_parameters(prefix=name)
        return Optimizer(dict(named), self._config.adam_eps, self._config.max_grad_norm)

    def _collector(self, lanes: range, make_env: MakeEnv, policy: nn.Module, vectors: Vectors) -> Collector:
        config = self._config
        index = torch.arange(lanes.start * self._width, lanes.stop * self._width, device=self._world.device)
        return Collector(
            make_env(index, config.seed),
            index,
            lanes,
            policy,
            vectors,
            steps=config.n_steps,
            rows=config.memory_rows,
            kept_as=torch.float16 if config.memory_format == "fp16" else torch.float32,
            tag=self._name,
            seed=config.seed,
            precision=self._precision,
            accelerator=self._accelerator,
            watch=self._watch,
        )

    def _empty_batch(self, collector: Collector) -> Batch:
        samples = self._config.batch_size * len(collector.lanes) // self._world.lanes.total
        place = torch.zeros(samples, dtype=torch.int64, device=self._world.device)
        agents = collector.env.observation_shape[0]
        return Batch(collector.memory, place, 1.0 / (self._config.batch_size * agents))

    def state(self) -> Snapshot:
        """Everything needed to go on: each lane with its memory. Called by every rank."""
        lanes = {k: v for c in self._collectors for k, v in c.state(self._rows_written()).items()}
        moments = self._actor_optimizer.state() | self._critic_optimizer.state()
        past = self._past.state() if self._past is not None else {}
        counters = {
            "updates": self.updates,
            "steps": self.steps,
            "gradient_updates": self.gradient_updates,
            "precision": self._precision.state(),
        }
        return Snapshot(dict(self.model.state_dict()), moments | past, counters, lanes)

    def outline(self, counters: Mapping[str, Any]) -> Snapshot:
        """The names, shapes and types of a state with these counters."""
        written = counters["steps"] // self._config.n_envs
        moments = self._actor_optimizer.outline() | self._critic_optimizer.outline()
        return replace(
            self.state(),
            optimizer=(moments if counters["gradient_updates"] else {}) | (self._past.state() if self._past else {}),
            lanes={k: v for c in self._collectors for k, v in c.state(written).items()},
        )

    def load(self, snapshot: Snapshot) -> None:
        """Take up a state saved by any number of ranks. Called by every rank."""
        self.model.load_state_dict(snapshot.model)
        self._actor_optimizer.load(snapshot.optimizer)
        self._critic_optimizer.load(snapshot.optimizer)
        if self._past is not None:
            self._past.load(snapshot.optimizer)
        self.updates, self.steps = snapshot.state["updates"], snapshot.state["steps"]
        self.gradient_updates = snapshot.state["gradient_updates"]
        self._precision.load(snapshot.state["precision"])
        for collector in self._collectors:
            collector.load(snapshot.lanes, self._rows_written())


class _Learned:
    """What the gradient updates of a round report, kept on the device until the round is over."""

    def __init__(self, cohorts: int) -> None:
        self._sums: list[Metrics] = [{} for _ in range(cohorts)]
        self._norms: dict[str, list[Tensor]] = {"critic": [], "actor": []}
        self._finite: list[Tensor] = []

    @property
    def updates(self) -> int:
        """Gradient updates of the round so far."""
        return len(self._norms["actor"])

    def add(self, cohorts: list[Metrics]) -> None:
        """Count one loss's metrics of every cohort."""
        for total, found in zip(self._sums, cohorts, strict=True):
            for name, value in found.items():
                total[name] = total[name] + value if name in total else value.clone()

    def moved(self, what: str, norm: Tensor, finite: Tensor) -> None:
        """Count one optimiser step."""
        self._norms[what].append(norm.clone())
        self._finite.append(finite.clone())

    def shares(self) -> list[dict[str, float]]:
        """Each cohort's share of every metric's mean."""
        return [{name: float(value) / self.updates for name, value in total.items()} for total in self._sums]

    def common(self) -> dict[str, float]:
        """What is the same on all ranks: norms of the gradients, and how many updates there were."""
        counts = {"gradient_updates": float(self.updates), "skipped_updates": float(self.skipped())}
        if not self.updates:
            return counts
        return counts | {
            f"grad_norm_{what}": float(torch.stack(norms).nanmean()) for what, norms in self._norms.items()
        }

    def skipped(self) -> int:
        """Optimiser steps that were left out because a gradient was not finite."""
        return int((~torch.stack(self._finite)).sum()) if self._finite else 0
