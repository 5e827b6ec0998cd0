"""TD-MPC2 on any number of ranks. E: environments of a cohort."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.actor import Actor
from lockstep.algorithms.tdmpc2.collector import Collector
from lockstep.algorithms.tdmpc2.config import TDMPC2Config
from lockstep.algorithms.tdmpc2.discrete import Bins
from lockstep.algorithms.tdmpc2.evaluator import Evaluator, MakeEnv
from lockstep.algorithms.tdmpc2.library import Library
from lockstep.algorithms.tdmpc2.model import Sizes, Spaces, TDMPC2Model
from lockstep.algorithms.tdmpc2.planner import Planner, Search
from lockstep.algorithms.tdmpc2.sampler import Sampler, columns
from lockstep.algorithms.tdmpc2.training import Training
from lockstep.compute.graphs import Accelerator
from lockstep.compute.optimizer import scheduled_rate
from lockstep.compute.precision import Precision
from lockstep.compute.stopwatch import Stopwatch
from lockstep.distributed.world import World
from lockstep.envs.vector_env import ContinuousEnv
from lockstep.errors import RunFailed
from lockstep.reporting.evaluation import Evaluation
from lockstep.reporting.metrics import Stat, Stats
from lockstep.rl.sequence_replay import SequenceReplay
from lockstep.run.learner import refuse_other_data
from lockstep.storage.checkpoint import Snapshot


def sizes_of(config: TDMPC2Config, tasks: int) -> Sizes:
    """The networks that a configuration asks for."""
    return Sizes(
        encoder=config.size("enc_dim"),
        encoder_layers=config.size("num_enc_layers"),
        hidden=config.size("mlp_dim"),
        latent=config.size("latent_dim"),
        values=config.size("num_q"),
        task=config.size("task_dim") if tasks > 1 else 0,
        simplex=config.simnorm_dim,
        log_std=(config.log_std_min, config.log_std_max),
        bins=Bins(config.vmin, config.vmax, config.num_bins),
    )


def search_of(config: TDMPC2Config, action: int) -> Search:
    """How a configuration searches for plans of actions with so many numbers."""
    return Search(
        horizon=config.horizon,
        iterations=config.iterations_for(action),
        samples=config.num_samples,
        elites=config.num_elites,
        prior=config.num_pi_trajs,
        min_std=config.min_std,
        max_std=config.max_std,
        temperature=config.temperature,
    )


class TDMPC2Learner:
    """Every cohort acts and remembers; at every step the world learns as often as the run's ratio says."""

    def __init__(
        self,
        config: TDMPC2Config,
        world: World,
        spaces: Spaces,
        make_env: MakeEnv,
        *,
        name: str,
        library: Callable[[range], Library] | None = None,
        first_weights: Callable[[], Mapping[str, Tensor]] | None = None,
    ) -> None:
        """`library`: what some lanes learn from instead of acting; `first_weights` are read at a run's first step."""
        sizes = sizes_of(config, spaces.tasks)
        self.model = TDMPC2Model(sizes, spaces, config.seed).to(world.device)
        self.updates = 0
        self.steps = 0
        self.gradient_updates = 0
        self.total_steps = config.steps
        self._config, self._world, self._spaces, self._name = config, world, spaces, name
        self._make_env, self._first_weights = make_env, first_weights
        self._precision = Precision(config.precision, world.device)
        self._watch = Stopwatch(world.device)
        self._accelerator = accelerator = Accelerator(world.device, config.compile, exact=world.sync == "exact")
        self._longest = max(spaces.episode_lengths)
        discounts = [config.discount_of(length) for length in spaces.episode_lengths]
        self._discount = discounts[0] if spaces.tasks == 1 else torch.tensor(discounts, device=world.device)
        search = search_of(config, spaces.action)
        self._planner = Planner(self.model, search, self._discount, accelerator.compile) if config.mpc else None
        # Evaluations have other shapes than training: compiling for them as well would take longer than they do.
        tester = Planner(self.model, search, self._discount) if config.mpc else None
        self._evaluator = Evaluator(self.model, tester, make_env, world, self._precision, accelerator.record, name)
        assert config.offline == (library is not None)
        self._library = library

    # Memories, environments and data are there from the first step on: a model that is only evaluated needs none.
    @functools.cached_property
    def _collectors(self) -> Sequence[Collector | Library]:
        return [(self._library or self._collector)(lanes) for lanes in self._world.lanes.cohorts]

    @functools.cached_property
    def _training(self) -> Training:
        config, world = self._config, self._world
        samples = config.batch_size // world.lanes.total
        samplers = [
            Sampler(c.memory, c.lanes, samples, self.model.sizes, self._spaces, config.dropout, config.seed)
            for c in self._collectors
        ]
        return Training(config, world, self.model, samplers, self._discount, self._precision, self._accelerator)

    def step(self) -> list[Stats]:
        """One round: n_steps everywhere, and the learning that belongs to them. Called by every rank."""
        config = self._config
        if self.steps == 0 and self._first_weights is not None:
            self.model.load_state_dict(dict(self._first_weights()), strict=False)
        rate = scheduled_rate(config.lr, "constant", self.steps, config.steps, config.lr_warmup, config.round_size)
        self._training.begin(self.gradient_updates, rate)
        for _ in range(config.n_steps):
            number, wildly = self._rows_written(), self.gradient_updates == 0
            for collector in self._collectors:
                collector.decide(number, wildly)
            # A GPU learns while the host steps the environments: it learns from what was remembered before.
            self._learn()
            for collector in self._collectors:
                collector.act(number)
            self.steps += config.stride
        return self._reports(rate)

    def _learn(self) -> None:
        """As many gradient updates as are due by now; counted over all ranks. Called by every rank."""
        config = self._config
        due = config.updates_after(self.steps, self._longest) - self.gradient_updates
        if due >= config.sync_freq and self.gradient_updates == 0:
            self._check_sequences()
        with self._watch.part("learning"):
            for _ in range(due // config.sync_freq):
                self._training.step()
                self.gradient_updates += config.sync_freq

    def _check_sequences(self) -> None:
        lacking = sum(collector.memory.lanes_without_sequence() for collector in self._collectors)
        if self._world.agree(lacking):
            raise RunFailed(
                f"after {self.steps:,} steps some lanes have had no episode of {self._config.horizon} steps to learn "
                "from; lower --horizon or raise --seed-steps"
            )

    def _reports(self, rate: float) -> list[Stats]:
        config = self._config
        with self._watch.part("learning"):
            told = self._training.totals.read()
        if self._world.agree(told.skipped) and config.nonfinite == "stop":
            raise RunFailed(
                f"round {self.updates}: {told.skipped} gradient step(s) were not finite; the weights were left as they "
                "were; lower --lr, or go on with --nonfinite skip"
            )
        reports = [collector.report() for collector in self._collectors]
        for report, lanes, shares in zip(reports, self._world.lanes.cohorts, told.shares, strict=True):
            # Shares add up to the global mean once their weights do.
            weight = len(lanes) / self._world.lanes.total
            report |= {f"train/{name}": Stat(v, weight, v / weight, v / weight) for name, v in shares.items()}
        gradient_updates = told.updates * config.sync_freq
        common = {
            **told.common,
            "pi_scale": float(self.model.value_scale),
            "gradient_updates": gradient_updates,
            "updates_per_step": gradient_updates / config.round_size,
            "skipped_updates": told.skipped,
            "learning_rate": rate,
        }
        reports[0] |= {f"train/{name}": Stat.of([float(value)]) for name, value in common.items()}
        self.updates += 1
        return reports

    def done(self) -> bool:
        """Whether the next round would go beyond the run's steps."""
        return self.steps + self._config.round_size > self._config.steps

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Episodes (of each task) without the noise of training, shared out over lanes. Called by every rank."""
        return self._evaluator.evaluate(episodes * self._spaces.tasks, seed)

    def acting(self, seed: int, explore: bool = False, clock: int = 0) -> Callable[[Tensor, ContinuousEnv], Tensor]:
        """A policy to be watched or recorded: (observation (E, D), its environments) -> action (E, A), on the host.

        `clock`: the number of the first step, by which what is drawn for it is told apart.
        """
        return self._evaluator.acting(seed, explore, clock)

    def timings(self) -> dict[str, float]:
        """Seconds of this rank since the last call, by part."""
        return self._watch.take()

    def _rows_written(self) -> int:
        return self.steps // self._config.stride

    def _collector(self, lanes: range) -> Collector:
        config, device = self._config, self._world.device
        width = config.num_envs // self._world.lanes.total
        index = torch.arange(lanes.start * width, lanes.stop * width)
        env = self._make_env(index, config.seed)
        task = env.task.cpu() if self._spaces.tasks > 1 else None
        actor = Actor(
            self.model,
            self._planner,
            index.to(device),
            None if task is None else task.to(device),
            config.seed,
            self._precision,
            explores=True,
            recorded=self._accelerator.record,
        )
        memory = SequenceReplay(
            lanes, config.memory_rows, width, columns(self._spaces), config.seed, device, config.horizon
        )
        return Collector(
            env,
            index,
            lanes,
            memory,
            actor,
            task=task,
            mask=None if task is None else self._spaces.masks()[task],
            steps=config.n_steps,
            tag=self._name,
            seed=config.seed,
            watch=self._watch,
        )

    @property
    def data_digest(self) -> str:
        """What tells the data that it learns from without acting from other data; empty where it acts."""
        return self._collectors[0].data_digest

    def state(self) -> Snapshot:
        """Everything needed to go on: each lane with its memory. Called by every rank."""
        lanes = {k: v for c in self._collectors for k, v in c.state(self._rows_written()).items()}
        counters = {
            "updates": self.updates,
            "steps": self.steps,
            "gradient_updates": self.gradient_updates,
            "precision": self._precision.state(),
            "data_digest": self.data_digest,
        }
        return Snapshot(dict(self.model.state_dict()), self._training.state(), counters, lanes)

    def outline(self, counters: Mapping[str, Any]) -> Snapshot:
        """The names, shapes and types of a state with these counters."""
        written = counters["steps"] // self._config.stride
        return replace(
            self.state(),
            optimizer=self._training.outline() if counters["gradient_updates"] else {},
            lanes={k: v for c in self._collectors for k, v in c.state(written).items()},
        )

    def load(self, snapshot: Snapshot) -> None:
        """Take up a state saved by any number of ranks. Called by every rank."""
        refuse_other_data(snapshot.state.get("data_digest"), self.data_digest)
        self.model.load_state_dict(snapshot.model)
        self._training.load(snapshot.optimizer)
        self.updates, self.steps = snapshot.state["updates"], snapshot.state["steps"]
        self.gradient_updates = snapshot.state["gradient_updates"]
        self._precision.load(snapshot.state["precision"])
        for collector in self._collectors:
            collector.load(snapshot.lanes, self._rows_written())
