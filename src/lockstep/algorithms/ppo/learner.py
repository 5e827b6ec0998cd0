"""PPO on any number of ranks. L: lanes of a cohort, M: minibatches of an epoch, B: samples of a lane in a minibatch.

A network that remembers learns from whole sequences of T steps; then B counts these. Any other has T = 1.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.algorithms.ppo.collector import Collector, Describe, Teacher
from lockstep.algorithms.ppo.config import PPOConfig
from lockstep.algorithms.ppo.losses import CloningLoss, Forecast, Minibatch, PPOLoss, Sequences, steps_of
from lockstep.compute import random
from lockstep.compute.graphs import Accelerator
from lockstep.compute.lane_states import cut, joined
from lockstep.compute.moments import mean_and_deviation, moment_sums
from lockstep.compute.optimizer import Optimizer, scheduled_rate
from lockstep.compute.precision import Precision
from lockstep.compute.stopwatch import Stopwatch
from lockstep.distributed.replicas import Metrics, Replica, replicate
from lockstep.distributed.world import World
from lockstep.envs.vector_env import VectorEnv
from lockstep.errors import RunFailed
from lockstep.reporting.evaluation import Evaluation
from lockstep.reporting.metrics import Stat, Stats
from lockstep.rl.evaluation import Act, evaluate
from lockstep.rl.stateful_policy import StatefulPolicy
from lockstep.storage.checkpoint import Snapshot

MakeEnv = Callable[[Tensor, int], VectorEnv]


class PPOLearner:
    """Proximal policy optimisation: every cohort acts, then the world learns minibatch by minibatch."""

    def __init__(
        self,
        config: PPOConfig,
        world: World,
        network: nn.Module,
        make_env: MakeEnv,
        *,
        name: str,
        make_test: MakeEnv | None = None,
        describe: Describe | None = None,
        teacher: Teacher | None = None,
        cloning_steps: int = 0,
        sequence_length: int = 1,
        critic_rate: float = 1.0,
        forecast: Forecast | None = None,
        precise_timing: bool = False,
    ) -> None:
        """`make_test`: environments for an evaluation, where those are others than for training.

        `critic_rate`: how many times as fast the weights learn whose names begin with "critic".
        """
        self.model = network.to(world.device)
        self.updates = 0
        self.steps = 0
        self.total_steps = config.total_timesteps
        self._config = config
        self._world = world
        self._make_env, self._make_test = make_env, make_test or make_env
        self._describe = describe
        self._name = name
        self._teacher, self._cloning_steps = teacher, cloning_steps
        self._precision = Precision(config.precision, world.device)
        self._watch = Stopwatch(world.device, precise_timing)
        self._sequence_length = sequence_length
        weights = dict(self.model.named_parameters())
        self._optimizer = Optimizer(weights, config.adam_eps, config.max_grad_norm, scales={"critic": critic_rate})
        self._accelerator = accelerator = Accelerator(world.device, config.compile, exact=world.sync == "exact")
        policy = accelerator.compile(self.model)
        self._envs_per_lane = config.n_envs // world.lanes.total
        self._collectors = [self._collector(lanes, policy, accelerator) for lanes in world.lanes.cohorts]
        self._batches = [
            self._empty_batches(lanes, c) for lanes, c in zip(world.lanes.cohorts, self._collectors, strict=True)
        ]
        recorder = accelerator.record if accelerator.records else None
        loss = PPOLoss(
            policy,
            config.clip_range,
            config.clip_range_vf,
            config.ent_coef,
            config.vf_coef,
            config.normalize_advantage,
            forecast,
        )
        self._replica = replicate(loss, world, self._precision, recorder)
        self._cloning: Replica | None = None
        if cloning_steps:
            cloning = CloningLoss(policy, config.vf_coef)
            self._cloning = replicate(cloning, world, self._precision, recorder, beside=self._replica)
        self._descend = accelerator.record(self._descend_once)

    def step(self) -> list[Stats]:
        """Act for n_steps everywhere, then learn from it. Called by every rank."""
        cloning = self.steps < self._cloning_steps
        self._optimizer.set_rate(self.learning_rate())
        reports = [c.collect(self.updates, self._teacher if cloning else None) for c in self._collectors]
        with self._watch.part("learning"):
            learned = self._learn(self._cloning if cloning and self._cloning else self._replica)
        for report, lanes, metrics in zip(reports, self._world.lanes.cohorts, learned, strict=True):
            # Shares add up to the global mean once their weights do.
            weight = len(lanes) / self._world.lanes.total
            report |= {f"train/{name}": Stat(v, weight, v / weight, v / weight) for name, v in metrics.items()}
        reports[0]["train/learning_rate"] = Stat.of([self.learning_rate()])
        self.updates += 1
        self.steps += self._config.rollout_size
        return reports

    def learning_rate(self) -> float:
        """The rate of the next update: warm-up, then the schedule over the whole run."""
        c = self._config
        return scheduled_rate(
            c.learning_rate, c.lr_schedule, self.steps, c.total_timesteps, c.lr_warmup, c.rollout_size
        )

    def done(self) -> bool:
        """Whether the next update would go beyond the run's steps."""
        return self.steps + self._config.rollout_size > self._config.total_timesteps

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Greedy episodes, shared out over lanes. Called by every rank."""

        def make_env(index: Tensor) -> VectorEnv:
            return self._make_test(index, seed)

        return evaluate(self._world, make_env, self.policy(), episodes, seed, self._name, self._accelerator.record)

    def policy(self, remembers: bool = True) -> Act:
        """The most probable actions for the first episode of environments, with their memory or with none."""
        policies: dict[VectorEnv, StatefulPolicy] = {}

        def greedy(observation: Tensor, env: VectorEnv) -> Tensor:
            if env not in policies:
                policies[env] = StatefulPolicy(self.model, env.count, observation.device)
            if not remembers:
                policies[env].forget()
            with self._precision.autocast():
                return policies[env].act(observation)[0].argmax(-1)

        return greedy

    def timings(self) -> dict[str, float]:
        """Seconds of this rank since the last call, by part."""
        return self._watch.take()

    def _learn(self, replica: Replica) -> list[dict[str, float]]:
        """All epochs over the roll-outs; returns each cohort's share of every metric."""
        config, cohorts = self._config, self._world.lanes.cohorts
        sums: list[Metrics] = [{} for _ in cohorts]
        norms, finite, epochs = [], [], 0
        for epoch in range(config.n_epochs):
            orders = [self._order(lanes, epoch) for lanes in cohorts]
            moments = self._advantage_moments(orders)
            for number in range(moments.shape[0]):
                self._choose(orders, moments, number)
                for total, found in zip(sums, replica.backward(self._batches), strict=True):
                    for name, value in found.items():
                        total[name] = total[name] + value if name in total else value.clone()
                norm, good = self._descend()
                norms.append(norm.clone())
                finite.append(good.clone())
            epochs += 1
            if self._too_far(sums, epochs * moments.shape[0]):
                break
        minibatches = len(norms)
        self._refuse_if_asked(finite, sums)
        learned = [{name: float(value) / minibatches for name, value in total.items()} for total in sums]
        share = [len(lanes) / self._world.lanes.total for lanes in cohorts]
        extra = {
            "grad_norm": float(torch.stack(norms).nanmean()),
            "skipped_updates": float((~torch.stack(finite)).sum()),
            "epochs": float(epochs),
        }
        return [found | {k: v * s for k, v in extra.items()} for found, s in zip(learned, share, strict=True)]

    def _descend_once(self) -> tuple[Tensor, Tensor]:
        norm, finite = self._optimizer.step()
        self._precision.learn_from(finite)
        return norm, finite

    def _order(self, lanes: range, epoch: int) -> Tensor:
        """(L, M, B) positions in the cohort's roll-out: each lane contributes the same number to every minibatch."""
        config, device, length = self._config, self._world.device, self._sequence_length
        per_lane = self._envs_per_lane * config.n_steps // length
        lane_index = torch.arange(lanes.start, lanes.stop, device=device)
        step = self.updates * config.n_epochs + epoch
        position = random.permutations(config.seed, "minibatch", lane_index, step, per_lane)
        sequence, env = position // self._envs_per_lane, position % self._envs_per_lane
        first_env = (lane_index - lanes.start)[:, None] * self._envs_per_lane
        width = len(lanes) * self._envs_per_lane
        samples = config.batch_size // (self._world.lanes.total * length)
        return (sequence * length * width + first_env + env).view(len(lanes), -1, samples)

    def _advantage_moments(self, orders: list[Tensor]) -> Tensor:
        """(M, 2) mean and deviation of each minibatch's advantages over the world."""
        parts = []
        for collector, order in zip(self._collectors, orders, strict=True):
            samples = steps_of(order, self._sequence_length, collector.env.count).permute(2, 1, 3, 0)
            parts.append(moment_sums(collector.rollout.advantage.flatten()[samples].flatten(1)))
        return mean_and_deviation(self._world.total(parts))

    def _choose(self, orders: list[Tensor], moments: Tensor, number: int) -> None:
        """Point the standing micro-batches at minibatch `number`."""
        for order, batches in zip(orders, self._batches, strict=True):
            pieces = order[:, number].chunk(len(batches), dim=1)
            for batch, piece in zip(batches, pieces, strict=True):
                batch.index.copy_(piece.reshape(-1))
                batch.moments.copy_(moments[number])

    def _too_far(self, sums: list[Metrics], minibatches: int) -> bool:
        """Whether the policy has moved beyond the KL limit, decided by the world. Called by every rank."""
        limit = self._config.target_kl
        if limit is None or "approx_kl" not in sums[0]:
            return False
        divergence = self._world.total([total["approx_kl"] for total in sums]) / minibatches
        return bool(self._world.agree(int(float(divergence) > 1.5 * limit)))

    def _refuse_if_asked(self, finite: list[Tensor], sums: list[Metrics]) -> None:
        """Stop the world, naming the lanes, when a gradient was not finite and the run asks for that."""
        bad = int((~torch.stack(finite)).sum())
        if not self._world.agree(bad) or self._config.nonfinite == "skip":
            return
        mine = [
            lane
            for lanes, total in zip(self._world.lanes.cohorts, sums, strict=True)
            if not all(math.isfinite(float(v)) for v in total.values())
            for lane in lanes
        ]
        lanes = sorted(lane for part in self._world.gather_json(mine) for lane in part)
        raise RunFailed(
            f"update {self.updates}: {bad} gradient step(s) were not finite (lanes {lanes or 'unknown'}); "
            "the weights were left as they were; lower --learning-rate, or go on with --nonfinite skip"
        )

    def _collector(self, lanes: range, policy: nn.Module, accelerator: Accelerator) -> Collector:
        config = self._config
        index = torch.arange(
            lanes.start * self._envs_per_lane, lanes.stop * self._envs_per_lane, device=self._world.device
        )
        return Collector(
            self._make_env(index, config.seed),
            index,
            config.n_steps,
            policy,
            sequence_length=self._sequence_length,
            tag=self._name,
            seed=config.seed,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            precision=self._precision,
            accelerator=accelerator,
            watch=self._watch,
            describe=self._describe,
        )

    def _empty_batches(self, lanes: range, collector: Collector) -> list[Minibatch]:
        config, device, rollout = self._config, self._world.device, collector.rollout
        length = self._sequence_length
        samples = config.batch_size * len(lanes) // (self._world.lanes.total * config.grad_accum * length)
        memory = tuple(part.flatten(0, 1) for part in rollout.memory)
        return [
            Minibatch(
                rollout.flat(),
                torch.zeros(samples, dtype=torch.int64, device=device),
                torch.zeros(2, device=device),
                1.0 / config.batch_size,
                Sequences(length, collector.env.count, memory) if memory else None,
            )
            for _ in range(config.grad_accum)
        ]

    def state(self) -> Snapshot:
        """Everything needed to go on; lanes are cut out of their cohorts. Called by every rank."""
        lanes: dict[int, dict[str, Tensor]] = {}
        for cohort, collector in zip(self._world.lanes.cohorts, self._collectors, strict=True):
            lanes |= cut(cohort, collector.state())
        counters = {"updates": self.updates, "steps": self.steps, "precision": self._precision.state()}
        return Snapshot(dict(self.model.state_dict()), self._optimizer.state(), counters, lanes)

    def outline(self, counters: Mapping[str, Any]) -> Snapshot:
        """The names, shapes and types of a state with these counters."""
        return replace(self.state(), optimizer=self._optimizer.outline() if counters["updates"] else {})

    def load(self, snapshot: Snapshot) -> None:
        """Take up a state saved by any number of ranks. Called by every rank."""
        self.model.load_state_dict(snapshot.model)
        self._optimizer.load(snapshot.optimizer)
        self.updates, self.steps = snapshot.state["updates"], snapshot.state["steps"]
        self._precision.load(snapshot.state["precision"])
        for cohort, collector in zip(self._world.lanes.cohorts, self._collectors, strict=True):
            collector.load(joined(cohort, snapshot.lanes))
