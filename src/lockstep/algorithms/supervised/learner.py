"""Supervised learning on any number of ranks: every sample once per epoch, in an order given by (seed, epoch)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.algorithms.supervised import epoch_plan
from lockstep.algorithms.supervised.dataset import Streamed, class_counts
from lockstep.algorithms.supervised.epoch_plan import Pass, Places
from lockstep.algorithms.supervised.losses import Batch, batch_weights, inverse_frequency
from lockstep.algorithms.supervised.model import SupervisedModel, average_share
from lockstep.algorithms.supervised.objectives import Classification
from lockstep.algorithms.supervised.patience import Patience
from lockstep.algorithms.supervised.problem import DataProblem
from lockstep.algorithms.supervised.settings import SupervisedSettings
from lockstep.algorithms.supervised.validation import Validation, Validator, evaluating
from lockstep.compute.dropout import counted_dropout
from lockstep.compute.graphs import Accelerator
from lockstep.compute.optimizer import Optimizer, scheduled_rate
from lockstep.compute.precision import Precision
from lockstep.compute.stopwatch import Stopwatch
from lockstep.config.config import Config, NetworkSettings, WorkloadSettings
from lockstep.distributed.replicas import replicate
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.reporting.metrics import Stats
from lockstep.rl.distributions import CategoricalActions
from lockstep.rl.player import PolicyPlayer
from lockstep.run.gradient_steps import GradientSteps
from lockstep.run.learner import Learner, refuse_other_data
from lockstep.storage.checkpoint import Snapshot

SupervisedConfig = Config[SupervisedSettings, WorkloadSettings, NetworkSettings]


class SupervisedLearner(Learner):
    """A step is one global batch; after the last batch of an epoch all ranks validate together."""

    def __init__(
        self,
        config: SupervisedConfig,
        world: World,
        problem: DataProblem,
        network: nn.Module,
        *,
        precise_timing: bool = False,
    ) -> None:
        """`network`: (inputs, noise (B,) or None) -> output, such as logits (B, C).

        The noise decides what is dropped, None = nothing. Layers of nn.Dropout, which take no noise, are replaced.
        """
        settings, run, train = config.algorithm, config.run, problem.train
        objective = problem.objective or Classification(settings)
        # Before the weights are copied for the average: both have the same layers.
        words = counted_dropout(network)
        self._model = SupervisedModel(network, bool(settings.ema_decay), objective.serve).to(world.device)
        self.model: nn.Module = self._model
        self._data_digest, self.sample = problem.data_digest, problem.sample
        self.score_name, self.lower_is_better = problem.tally.watched, True
        self.total_steps = settings.epochs * sum(train.sizes)
        self._settings, self._run, self._world, self._train = settings, run, world, train
        self._precision = Precision(run.precision, world.device)
        self._watch = Stopwatch(world.device, precise_timing)
        self._accelerator = accelerator = Accelerator(world.device, run.compile, exact=world.sync == "exact")
        self._plan = Pass(train.sizes, settings.batch_size, world.lanes.total)
        self._counts = self._plan.counts()
        self._epoch, self._number = 0, 0  # the epoch, and its next batch
        self._patience = Patience()
        self._validated: tuple[tuple[int, int], Validation] | None = None
        # Not the moving average: it has no gradient and follows by itself.
        named = self._model.network.named_parameters(prefix="network")
        # Frozen weights would still decay.
        trained = {name: parameter for name, parameter in named if parameter.requires_grad}
        if not trained:
            raise UserError("network: has no weights to train (requires_grad is False everywhere)")
        betas = (0.9, settings.adam_beta2)  # 0.9 is Adam's usual decay of the mean gradient
        self._optimizer = Optimizer(
            trained, settings.adam_eps, settings.max_grad_norm, betas, weight_decay=settings.weight_decay
        )
        # Once, before training: the weights depend on all training samples, not on batches.
        self._class_weights = self._reduce_class_weights() if settings.class_weights else None
        # Compiled only on request: each group has its own shapes, and compiling all of them takes minutes.
        computed = accelerator.compile(network) if run.compile == "default" else network
        loss = objective.loss(computed, self._class_weights, words)
        recorder = accelerator.record if accelerator.records else None
        self._replica = replicate(loss, world, self._precision, recorder, one_pass=not accelerator.compiles)
        # Tensors that are filled in place, so that recorded graphs read the current value.
        self._share, self._count_share, self._average_share = (torch.zeros((), device=world.device) for _ in range(3))
        self._batches = [self._empty_batches(lanes) for lanes in world.lanes.cohorts]
        self._descend = accelerator.record(self._descend_once)
        self._validator = Validator(
            self.model,
            problem.validation,
            problem.tally,
            world,
            lambda: self.safe_point("evaluating"),
            batch_size=settings.eval_batch_size,
            precision=self._precision,
            accelerator=accelerator,
        )
        self._places: list[list[Places]] = []
        self._weights = torch.zeros(0)
        self._learned = GradientSteps(world)
        self._classifies, self._evaluation = objective.classifies, problem.evaluation

    def step(self) -> list[Stats]:
        """Learn from the next batch. Called by every rank."""
        # Empty at the start of an epoch, and after a resume in the middle of one.
        if not self._places:
            self._begin_epoch()
        if not self._model.training:
            self._model.train()
        rate = self.learning_rate()
        self._optimizer.set_rate(rate)
        self._average_share.fill_(average_share(self._settings.ema_decay, self.updates))
        with self._watch.part("learning"):
            self._choose()
            self._learned.add(self._replica.backward(self._batches))
            self._learned.moved(*self._descend())
        self.steps += self._counts[self._number]
        self.updates += 1
        self._number += 1
        ended = self._number == self._plan.batches
        # Between log points nothing is read from the GPU, as reading would wait for it. With nonfinite=stop every
        # update has to be checked.
        due = ended or self.updates % self._run.log_every == 0 or self._run.nonfinite == "stop"
        reports: list[Stats] = self._report(rate) if due else [{} for _ in self._batches]
        self.evaluation_due = ended
        if ended:
            self._places, self._number = [], 0
            self._epoch += 1
        return reports

    def review(self) -> None:
        """After the last batch of an epoch: validate, and update early stopping and plateaus. Called by every rank."""
        if self._number or not self._settings.watches(self._run):
            return
        # The same validation on every rank, so that all ranks stop in the same epoch.
        self._patience.note(self.evaluate(self._run.eval_episodes, self._run.seed).loss, self._settings)

    def learning_rate(self) -> float:
        """The learning rate of the next update: warm-up, then the schedule over all epochs."""
        settings, stride = self._settings, self._counts[self._number]
        # Plateaus are a separate factor, since they depend on validations and not on the steps.
        schedule = "constant" if settings.lr_schedule == "plateau" else settings.lr_schedule
        warmup = self._run.lr_warmup
        rate = scheduled_rate(settings.learning_rate, schedule, self.steps, self.total_steps, warmup, stride)
        return rate * self._patience.factor

    def done(self) -> bool:
        """Whether all epochs are done, or early stopping ends the run."""
        return self.steps >= self.total_steps or self._patience.over(self._epoch, self._settings)

    def evaluate(self, episodes: int, seed: int) -> Validation:
        """Validate on at most `episodes` samples. Called by every rank."""
        # The loop asks again right after the end of an epoch, when `review` has already validated.
        asked = self.updates, episodes
        if self._validated is None or self._validated[0] != asked:
            with self._watch.part("validating"):
                self._validated = asked, self._measure(episodes, seed)
        return self._validated[1]

    def _measure(self, episodes: int, seed: int) -> Validation:
        validation, own = self._validator.validate(episodes, seed), self._evaluation
        if own is not None:
            validation.measured |= self._world.led(lambda: own(self.predict))
        return validation

    @torch.no_grad()
    def predict(self, inputs: Any) -> Any:
        """The prediction for a batch of inputs on this rank's device. Called by a single rank."""
        with evaluating(self.model), self._precision.autocast():
            return self.model(inputs)[0]

    @property
    def data_digest(self) -> str:
        """Identifies the data of this run."""
        return self._data_digest

    def player(self, seed: int) -> PolicyPlayer:
        """The model as a player whose actions are predicted classes. Called by a single rank."""
        if not self._classifies:
            raise UserError("its model predicts no classes, so it cannot act; use predict")
        return PolicyPlayer(self.model, CategoricalActions(), self._precision, self._world.device, seed)

    def begin_with(self, weights: Mapping[str, Tensor]) -> None:
        """Take over weights of another model; a moving average that it lacks starts from its weights."""
        averages = {name.replace("network.", "average.", 1): value for name, value in weights.items()}
        known = self.model.state_dict()
        super().begin_with({**{name: averages[name] for name in averages if name in known}, **weights})

    def timings(self) -> dict[str, float]:
        """Seconds that this rank spent in each part since the last call."""
        return self._watch.take()

    def _begin_epoch(self) -> None:
        """Plan the epoch's batches; each rank keeps the places of its own lanes."""
        # Every rank plans all lanes: the weight of a global batch is then known without communication.
        device, total = self._world.device, self._world.lanes.total
        stream = self._train if isinstance(self._train, Streamed) else None
        everyone = epoch_plan.shuffled(
            self._plan,
            self._run.seed,
            self._epoch,
            range(total),
            device,
            within=stream is not None,
            keeps_order=stream is not None and stream.keeps_order,
        )
        labels = []
        if self._class_weights is not None:
            labels = [self._train.labels(g, p.index) for g, p in zip(self._plan.groups, everyone, strict=True)]
        self._weights = batch_weights([place.weight for place in everyone], labels, self._class_weights)
        self._places = []
        for lanes in self._world.lanes.cohorts:
            own = []
            for group, place in zip(self._plan.groups, everyone, strict=True):
                width = self._plan.width(group)
                cut = slice(lanes.start * width, lanes.stop * width)
                own.append(Places(place.index[:, cut], place.weight[:, cut], place.noise[:, cut]))
            self._places.append(own)
        if stream is not None:
            self._places = epoch_plan.read_ahead(stream, self._epoch, self._places, self._number)

    def _choose(self) -> None:
        """Point the micro-batches at the samples of the next batch."""
        number = self._number
        if isinstance(self._train, Streamed):
            self._train.advance()
        for batches, places in zip(self._batches, self._places, strict=True):
            for batch, place in zip(batches, places, strict=True):
                batch.index.copy_(place.index[number])
                batch.weight.copy_(place.weight[number])
                batch.noise.copy_(place.noise[number])
        # Shares refer to the global batch, so that the losses of all lanes add up to its mean.
        self._share.copy_(1.0 / self._weights[number])
        self._count_share.fill_(1.0 / self._counts[number])

    def _descend_once(self) -> tuple[Tensor, Tensor]:
        norm, finite = self._optimizer.step()
        self._precision.learn_from(finite)
        # After the step: the average follows the new weights.
        self._model.follow(self._average_share)
        return norm, finite

    def _report(self, rate: float) -> list[Stats]:
        """Each cohort's metrics of the updates since the last log point. Called by every rank."""
        learned, self._learned = self._learned, GradientSteps(self._world)
        learned.refuse_non_finite(self._run.nonfinite, f"update {self.updates}", "--learning-rate")
        reports: list[Stats] = [{} for _ in self._batches]
        learned.report(reports, learning_rate=rate, epoch=self._epoch + self._number / self._plan.batches)
        return reports

    def _reduce_class_weights(self) -> Tensor:
        if isinstance(self._train, Streamed):
            raise UserError("class_weights: need all labels, and the training data is streamed; leave them out")
        world = self._world
        parts = [class_counts(self._train, lanes, world.lanes.total, world.device) for lanes in world.lanes.cohorts]
        return inverse_frequency(world.total(parts), self._settings.class_weight_power)

    def _empty_batches(self, lanes: range) -> list[Batch]:
        device = self._world.device
        batches = []
        # A micro-batch per group: samples of different groups have different shapes.
        for group in self._plan.groups:
            size = len(lanes) * self._plan.width(group)
            index, noise = (torch.zeros(size, dtype=torch.int64, device=device) for _ in range(2))
            weight = torch.zeros(size, device=device)
            batches.append(Batch(self._train, group, index, weight, noise, self._share, self._count_share))
        return batches

    def state(self) -> Snapshot:
        """Everything needed to resume, also in the middle of an epoch. Called by every rank."""
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
        # Lanes have no state of their own: batches follow from (seed, epoch).
        lanes: dict[int, dict[str, Tensor]] = {lane: {} for lane in self._world.lanes.mine}
        # AdamW has no moments before the first update.
        return replace(self.state(), optimizer=self._optimizer.outline() if counters["updates"] else {}, lanes=lanes)

    def load(self, snapshot: Snapshot) -> None:
        """Restore a state saved by any number of ranks. Called by every rank."""
        refuse_other_data(snapshot.state.get("data_digest"), self.data_digest)
        self.model.load_state_dict(snapshot.model)
        self._optimizer.load(snapshot.optimizer)
        state = snapshot.state
        self.updates, self.steps = state["updates"], state["steps"]
        self._epoch, self._number = state["epoch"], state["number"]
        self._patience = Patience.load(state["patience"])
        self._precision.load(state["precision"])
        # The next step plans the epoch again, as a function of (seed, epoch), and continues at `number`.
        self._places, self._validated = [], None
