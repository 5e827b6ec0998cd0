"""Supervised learning on any number of ranks: every sample once an epoch, in an order that (seed, epoch) decides."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.algorithms.supervised import epoch_plan
from lockstep.algorithms.supervised.config import SupervisedConfig
from lockstep.algorithms.supervised.dataset import Dataset, PlainTally, Tally, class_counts
from lockstep.algorithms.supervised.epoch_plan import Pass, Places
from lockstep.algorithms.supervised.losses import Batch, ClassificationLoss, batch_weights, inverse_frequency
from lockstep.algorithms.supervised.model import SupervisedModel, average_share
from lockstep.algorithms.supervised.patience import Patience
from lockstep.algorithms.supervised.validation import Validation, Validator
from lockstep.compute.graphs import Accelerator
from lockstep.compute.optimizer import Optimizer, scheduled_rate
from lockstep.compute.precision import Precision
from lockstep.compute.stopwatch import Stopwatch
from lockstep.distributed.replicas import Metrics, replicate
from lockstep.distributed.world import World
from lockstep.errors import RunFailed
from lockstep.reporting.metrics import Stat, Stats
from lockstep.run.learner import refuse_other_data
from lockstep.storage.checkpoint import Snapshot


class SupervisedLearner:
    """A step is one batch of the world's; after the last batch of an epoch the world validates."""

    def __init__(
        self,
        config: SupervisedConfig,
        world: World,
        network: nn.Module,
        train: Dataset,
        validation: Dataset,
        *,
        tally: Tally | None = None,
        data_digest: str = "",
        precise_timing: bool = False,
    ) -> None:
        """`network`: (inputs, noise (B,) or None) -> logits (B, C); noise decides what dropout leaves out.

        `data_digest`: tells one set of data from another, since a run goes on with its own only; empty = unknown.
        """
        self.model = SupervisedModel(network, bool(config.ema_decay)).to(world.device)
        self.data_digest = data_digest
        self.updates = 0
        self.steps = 0
        self.total_steps = config.epochs * sum(train.sizes)
        self.evaluation_due = False
        """Whether an epoch has just ended, which is when the loop looks for the best."""
        self._config, self._world, self._train = config, world, train
        self._precision = Precision(config.precision, world.device)
        self._watch = Stopwatch(world.device, precise_timing)
        self._accelerator = accelerator = Accelerator(world.device, config.compile, exact=world.sync == "exact")
        self._plan = Pass(train.sizes, config.batch_size, world.lanes.total)
        self._counts = self._plan.counts()
        self._epoch, self._number = 0, 0
        self._patience = Patience()
        self._validated: tuple[tuple[int, int], Validation] | None = None
        trained = dict(self.model.network.named_parameters(prefix="network"))
        betas = (0.9, config.adam_beta2)
        self._optimizer = Optimizer(
            trained, config.adam_eps, config.max_grad_norm, betas, weight_decay=config.weight_decay
        )
        self._class_weights = self._reduce_class_weights() if config.class_weights else None
        # Compiled only on request: each group is a shape of its own, and compiling all of them takes minutes.
        computed = accelerator.compile(network) if config.compile == "default" else network
        gamma = config.focal_gamma if config.loss == "focal" else 0.0
        loss = ClassificationLoss(computed, self._class_weights, gamma, config.label_smoothing)
        recorder = accelerator.record if accelerator.records else None
        self._replica = replicate(loss, world, self._precision, recorder)
        self._share, self._count_share, self._average_share = (torch.zeros((), device=world.device) for _ in range(3))
        self._batches = [self._empty_batches(lanes) for lanes in world.lanes.cohorts]
        self._descend = accelerator.record(self._descend_once)
        self._validator = Validator(
            self.model,
            validation,
            tally or PlainTally(),
            world,
            batch_size=config.eval_batch_size,
            precision=self._precision,
            accelerator=accelerator,
        )
        self._places: list[list[Places]] = []
        self._weights = torch.zeros(0)
        self._noted = _Noted(len(world.lanes.cohorts))

    def step(self) -> list[Stats]:
        """Learn from the next batch. Called by every rank."""
        if not self._places:
            self._begin_epoch()
        rate = self.learning_rate()
        self._optimizer.set_rate(rate)
        self._average_share.fill_(average_share(self._config.ema_decay, self.updates))
        with self._watch.part("learning"):
            self._choose()
            self._noted.add(self._replica.backward(self._batches), *self._descend())
        self.steps += self._counts[self._number]
        self.updates += 1
        self._number += 1
        ended = self._number == self._plan.batches
        # Between log points nothing is fetched, so that a GPU is not waited for; unless a bad gradient ends the run.
        due = ended or self.updates % self._config.log_every == 0 or self._config.nonfinite == "stop"
        reports: list[Stats] = self._report(rate) if due else [{} for _ in self._batches]
        self.evaluation_due = ended
        if ended:
            self._end_epoch()
        return reports

    def learning_rate(self) -> float:
        """The rate of the next update: warm-up, then the schedule over all epochs."""
        c, stride = self._config, self._counts[self._number]
        schedule = "constant" if c.lr_schedule == "plateau" else c.lr_schedule
        rate = scheduled_rate(c.learning_rate, schedule, self.steps, self.total_steps, c.lr_warmup, stride)
        return rate * self._patience.factor

    def done(self) -> bool:
        """Whether all epochs are over, or patience is."""
        return self.steps >= self.total_steps or self._patience.over(self._epoch, self._config)

    def evaluate(self, episodes: int, seed: int) -> Validation:
        """Measure on validation samples, `episodes` of them at most. Called by every rank."""
        asked = self.updates, episodes
        if self._validated is None or self._validated[0] != asked:
            with self._watch.part("validating"):
                self._validated = asked, self._validator.validate(episodes, seed)
        return self._validated[1]

    def timings(self) -> dict[str, float]:
        """Seconds of this rank since the last call, by part."""
        return self._watch.take()

    def _begin_epoch(self) -> None:
        """Lay out the epoch's batches: the same on every rank, each takes the places of its own lanes."""
        device, total = self._world.device, self._world.lanes.total
        everyone = epoch_plan.shuffled(self._plan, self._config.seed, self._epoch, range(total), device)
        labels = [self._train.labels(g, p.index) for g, p in zip(self._plan.groups, everyone, strict=True)]
        self._weights = batch_weights(labels, [place.weight for place in everyone], self._class_weights)
        self._places = []
        for lanes in self._world.lanes.cohorts:
            own = []
            for group, place in zip(self._plan.groups, everyone, strict=True):
                width = self._plan.width(group)
                cut = slice(lanes.start * width, lanes.stop * width)
                own.append(Places(place.index[:, cut], place.weight[:, cut], place.noise[:, cut]))
            self._places.append(own)

    def _choose(self) -> None:
        """Put the samples of the next batch into the standing micro-batches."""
        number = self._number
        for batches, places in zip(self._batches, self._places, strict=True):
            for batch, place in zip(batches, places, strict=True):
                batch.index.copy_(place.index[number])
                batch.weight.copy_(place.weight[number])
                batch.noise.copy_(place.noise[number])
        self._share.copy_(1.0 / self._weights[number])
        self._count_share.fill_(1.0 / self._counts[number])

    def _descend_once(self) -> tuple[Tensor, Tensor]:
        norm, finite = self._optimizer.step()
        self._precision.learn_from(finite)
        self.model.follow(self._average_share)
        return norm, finite

    def _end_epoch(self) -> None:
        """Validate, and let the world decide whether that was enough. Called by every rank."""
        self._places, self._number = [], 0
        self._epoch += 1
        if not self._config.watches:
            return
        log_loss = self.evaluate(self._config.eval_episodes, self._config.seed).log_loss
        self._patience.note(log_loss, self._config)

    def _report(self, rate: float) -> list[Stats]:
        """What each cohort has to say of the updates since the last log point. Called by every rank."""
        learned, norm, skipped = self._noted.take()
        self._refuse_if_asked(skipped, learned)
        reports: list[Stats] = []
        for lanes, metrics in zip(self._world.lanes.cohorts, learned, strict=True):
            # Shares add up to the global mean once their weights do.
            weight = len(lanes) / self._world.lanes.total
            common = {"grad_norm": norm * weight, "skipped_updates": skipped * weight}
            report = {f"train/{k}": Stat(v, weight, v / weight, v / weight) for k, v in (metrics | common).items()}
            reports.append(report)
        epoch = self._epoch + self._number / self._plan.batches
        reports[0] |= {"train/learning_rate": Stat.of([rate]), "train/epoch": Stat.of([epoch])}
        return reports

    def _refuse_if_asked(self, skipped: int, learned: list[dict[str, float]]) -> None:
        """Stop the world, naming the lanes, when a gradient was not finite and the run asks for that."""
        if not self._world.agree(skipped) or self._config.nonfinite == "skip":
            return
        mine = [
            lane
            for lanes, metrics in zip(self._world.lanes.cohorts, learned, strict=True)
            if not all(math.isfinite(value) for value in metrics.values())
            for lane in lanes
        ]
        lanes = sorted(lane for part in self._world.gather_json(mine) for lane in part)
        raise RunFailed(
            f"update {self.updates}: {skipped} gradient step(s) were not finite (lanes {lanes or 'unknown'}); "
            "the weights were left as they were; lower --learning-rate, or go on with --nonfinite skip"
        )

    def _reduce_class_weights(self) -> Tensor:
        world = self._world
        parts = [class_counts(self._train, lanes, world.lanes.total, world.device) for lanes in world.lanes.cohorts]
        return inverse_frequency(world.total(parts), self._config.class_weight_power)

    def _empty_batches(self, lanes: range) -> list[Batch]:
        device = self._world.device
        batches = []
        for group in self._plan.groups:
            size = len(lanes) * self._plan.width(group)
            index, noise = (torch.zeros(size, dtype=torch.int64, device=device) for _ in range(2))
            weight = torch.zeros(size, device=device)
            batches.append(Batch(self._train, group, index, weight, noise, self._share, self._count_share))
        return batches

    def state(self) -> Snapshot:
        """Everything needed to go on, in the middle of an epoch too. Called by every rank."""
        counters = {
            "updates": self.updates,
            "steps": self.steps,
            "epoch": self._epoch,
            "number": self._number,
            "patience": self._patience.state(),
            "precision": self._precision.state(),
            "data_digest": self.data_digest,
        }
        return Snapshot(dict(self.model.state_dict()), self._optimizer.state(), counters)

    def outline(self, counters: Mapping[str, Any]) -> Snapshot:
        """The names, shapes and types of a state with these counters."""
        lanes: dict[int, dict[str, Tensor]] = {lane: {} for lane in self._world.lanes.mine}
        return replace(self.state(), optimizer=self._optimizer.outline() if counters["updates"] else {}, lanes=lanes)

    def load(self, snapshot: Snapshot) -> None:
        """Take up a state saved by any number of ranks. Called by every rank."""
        refuse_other_data(snapshot.state.get("data_digest"), self.data_digest)
        self.model.load_state_dict(snapshot.model)
        self._optimizer.load(snapshot.optimizer)
        state = snapshot.state
        self.updates, self.steps = state["updates"], state["steps"]
        self._epoch, self._number = state["epoch"], state["number"]
        self._patience = Patience.load(state["patience"])
        self._precision.load(state["precision"])
        self._places, self._validated = [], None


class _Noted:
    """What the updates since the last log point came to, kept on the device."""

    def __init__(self, cohorts: int) -> None:
        self._cohorts = cohorts
        self._forget()

    def _forget(self) -> None:
        self._sums: list[Metrics] = [{} for _ in range(self._cohorts)]
        self._norms: list[Tensor] = []
        self._finite: list[Tensor] = []

    def add(self, cohorts: list[Metrics], norm: Tensor, finite: Tensor) -> None:
        """Count one update."""
        for total, found in zip(self._sums, cohorts, strict=True):
            for name, value in found.items():
                total[name] = total[name] + value if name in total else value.clone()
        self._norms.append(norm.clone())
        self._finite.append(finite.clone())

    def take(self) -> tuple[list[dict[str, float]], float, int]:
        """Each cohort's shares of the metrics, the mean norm of the gradient, and the updates that were left out."""
        updates = len(self._norms)
        learned = [{name: float(value) / updates for name, value in total.items()} for total in self._sums]
        norm, skipped = float(torch.stack(self._norms).nanmean()), int((~torch.stack(self._finite)).sum())
        self._forget()
        return learned, norm, skipped
