"""TD-MPC2 on any number of ranks. E: environments of a cohort."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.experience.collector import Collector
from lockstep.algorithms.tdmpc2.experience.columns import TASK, columns
from lockstep.algorithms.tdmpc2.experience.offline import OfflineData, fits_on_device, read_offline
from lockstep.algorithms.tdmpc2.experience.recorded import RecordedEpisodes
from lockstep.algorithms.tdmpc2.model.networks import TDMPC2Model
from lockstep.algorithms.tdmpc2.planning.actor import Actor
from lockstep.algorithms.tdmpc2.planning.evaluator import Evaluator
from lockstep.algorithms.tdmpc2.planning.planner import Planner
from lockstep.algorithms.tdmpc2.planning.player import PlanningPlayer
from lockstep.algorithms.tdmpc2.problem import environments, recorded_episodes
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings
from lockstep.algorithms.tdmpc2.training.sampler import Sampler
from lockstep.algorithms.tdmpc2.training.updates import Training
from lockstep.algorithms.tdmpc2.world_model import WorldModelSettings
from lockstep.compute.graphs import Accelerator
from lockstep.compute.optimizer import scheduled_rate
from lockstep.compute.precision import Precision
from lockstep.compute.stopwatch import Stopwatch
from lockstep.config.config import Config, WorkloadSettings
from lockstep.distributed.world import World
from lockstep.envs.vector_env import ContinuousEnv
from lockstep.errors import RunFailed
from lockstep.reporting.evaluation import Evaluation
from lockstep.reporting.metrics import Stat, Stats
from lockstep.rl.problem import EnvProblem
from lockstep.rl.sequence_replay import SequenceReplay
from lockstep.run.gradient_steps import add_shares, non_finite
from lockstep.run.learner import Learner, refuse_other_data
from lockstep.storage.checkpoint import Snapshot
from lockstep.storage.program_file import Program

TDMPC2Config = Config[TDMPC2Settings, WorkloadSettings, WorldModelSettings]


class TDMPC2Learner(Learner):
    """Every cohort acts and stores its steps; at every step all ranks learn as often as updates_per_step says."""

    def __init__(self, config: TDMPC2Config, world: World, problem: EnvProblem, network: TDMPC2Model) -> None:
        settings, run = config.algorithm, config.run
        self._network = network.to(world.device)
        self.model = self._network
        self.observation_shape = problem.observation_shape
        self.total_steps = settings.steps
        self._settings, self._run, self._world, self._problem = settings, run, world, problem
        self._spaces = spaces = network.spaces
        self._precision = Precision(run.precision, world.device)
        self._watch = Stopwatch(world.device)
        self._accelerator = accelerator = Accelerator(world.device, run.compile, exact=world.sync == "exact")
        # One seeding phase for all tasks, long enough for the task with the longest episodes.
        self._longest = max(spaces.episode_lengths)
        # Shorter episodes get a smaller discount, so tasks of different lengths need one each.
        discounts = [settings.discount_of(length) for length in spaces.episode_lengths]
        self._discount = discounts[0] if spaces.tasks == 1 else torch.tensor(discounts, device=world.device)
        self._planner = Planner(self._network, settings, self._discount, accelerator.compile) if settings.mpc else None
        # Not compiled: evaluations have other shapes than training, and compiling would take longer than they do.
        eval_planner = Planner(self._network, settings, self._discount) if settings.mpc else None
        self._evaluator = Evaluator(
            self._network,
            eval_planner,
            self._test_environments,
            world,
            self._precision,
            accelerator.record,
            problem.name,
        )

    def _test_environments(self, index: Tensor, seed: int) -> ContinuousEnv:
        return environments(self._problem, index, seed, self._world.device, test=True)

    # Created on first use: a model that is only evaluated needs no replay buffer, environments or data.
    @functools.cached_property
    def _collectors(self) -> Sequence[Collector | OfflineData]:
        return [self._source(lanes) for lanes in self._world.lanes.cohorts]

    @functools.cached_property
    def _training(self) -> Training:
        settings, world = self._settings, self._world
        samples = settings.batch_size // world.lanes.total
        samplers = [
            Sampler(c.memory, c.lanes, samples, self._network.sizes, self._spaces, self._run.seed)
            for c in self._collectors
        ]
        return Training(settings, world, self._network, samplers, self._discount, self._precision, self._accelerator)

    def step(self) -> list[Stats]:
        """One round: n_steps in every environment, with the gradient updates that are due. Called by every rank."""
        settings = self._settings
        warmup, length = self._run.lr_warmup, settings.round_size
        rate = scheduled_rate(settings.lr, "constant", self.steps, settings.steps, warmup, length)
        self._training.begin(self.gradient_updates, rate)
        for _ in range(settings.n_steps):
            # Until the first gradient update there is no model to plan with.
            number, at_random = self._rows_written(), self.gradient_updates == 0
            self.safe_point("acting")
            for collector in self._collectors:
                collector.decide(number, at_random)
            # Learning is started before the environments are stepped: a GPU learns, from the steps stored so far, while
            # the host simulates.
            self._learn()
            for collector in self._collectors:
                collector.act(number)
            self.steps += settings.stride
        return self._reports(rate)

    def _learn(self) -> None:
        """Do the gradient updates that are due, counted over all ranks. Called by every rank."""
        settings = self._settings
        due = settings.updates_after(self.steps, self._longest) - self.gradient_updates
        # Only before the first update: from then on the replay buffer keeps a spare sequence for every lane.
        if due >= settings.sync_freq and self.gradient_updates == 0:
            self._check_sequences()
        with self._watch.part("learning"):
            # Whole groups only; the rest stays due until the next step.
            for _ in range(due // settings.sync_freq):
                self.safe_point("learning")
                self._training.step()
                self.gradient_updates += settings.sync_freq

    def _check_sequences(self) -> None:
        """RunFailed, on all ranks, if a lane holds no complete sequence. Called by every rank."""
        missing = sum(collector.memory.lanes_without_sequence() for collector in self._collectors)
        if self._world.agree(missing):
            raise RunFailed(
                f"after {self.steps:,} steps some lanes have no episode of {self._settings.horizon} steps to learn "
                "from; lower --horizon or raise --seed-steps"
            )

    def _reports(self, rate: float) -> list[Stats]:
        settings = self._settings
        with self._watch.part("learning"):
            totals = self._training.totals.read()
        # All ranks vote, so that they stop together.
        if self._world.agree(totals.skipped) and self._run.nonfinite == "stop":
            raise non_finite(totals.skipped, f"round {self.updates}", "--lr")
        reports = [collector.report() for collector in self._collectors]
        add_shares(reports, self._world, totals.shares)
        gradient_updates = totals.updates * settings.sync_freq
        common = {
            **totals.common,
            "pi_scale": float(self._network.value_scale),
            "gradient_updates": gradient_updates,
            "updates_per_step": gradient_updates / settings.round_size,
            "skipped_updates": totals.skipped,
            "learning_rate": rate,
        }
        # Equal on every rank already: reported by one cohort, so that the reduction has nothing to average.
        reports[0] |= {f"train/{name}": Stat.of([float(value)]) for name, value in common.items()}
        self.updates += 1
        return reports

    def done(self) -> bool:
        """Whether the next round would exceed the run's steps."""
        return self.steps + self._settings.round_size > self._settings.steps

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Play `episodes` of each task without exploration noise, distributed over lanes. Called by every rank."""
        safe_point = partial(self.safe_point, "evaluating")
        return self._evaluator.evaluate(episodes * self._spaces.tasks, seed, safe_point)

    def player(self, seed: int) -> PlanningPlayer:
        """The model as a player, whose random numbers are derived from the seed."""
        return PlanningPlayer(self._evaluator, self._spaces.tasks, seed)

    def program(self) -> Program:
        """The policy prior as a function of tensors, without the planner. Called by a single rank."""
        count = 2
        kind = torch.float32 if self._spaces.image is None else torch.uint8
        inputs = {"observation": torch.zeros(count, *self._spaces.observation_shape, dtype=kind)}
        if self._spaces.tasks > 1:
            inputs[TASK] = torch.zeros(count, dtype=torch.int64)
        # A plan draws hundreds of trajectories at random and keeps the last one from step to step.
        note = "the policy prior alone, as planning cannot be exported" if self._settings.mpc else ""
        return Program(self._network, inputs, ("action",), note)

    def timings(self) -> dict[str, float]:
        """Seconds that this rank spent in each part since the last call."""
        return self._watch.take()

    def _rows_written(self) -> int:
        return self.steps // self._settings.stride

    def _source(self, lanes: range) -> Collector | OfflineData:
        """Where these lanes' experience comes from: environments to act in, or recorded episodes."""
        settings, world = self._settings, self._world
        if not settings.offline:
            return self._collector(lanes)
        return read_offline(self._files, settings, self._spaces, self._run.seed, lanes, world, self._data_on_device)

    @functools.cached_property
    def _data_on_device(self) -> bool:
        # Asked once for all cohorts: each of them alone might fit.
        return fits_on_device(self._files, self._settings, self._spaces, self._world)

    @functools.cached_property
    def _files(self) -> RecordedEpisodes:
        # One for all cohorts: in exact mode a rank has many, and each would map all files again.
        return recorded_episodes(self._problem, self._settings.data_dir)

    def _collector(self, lanes: range) -> Collector:
        settings, device, seed = self._settings, self._world.device, self._run.seed
        width = settings.num_envs // self._world.lanes.total
        # Numbered over the whole run: an environment keeps its random numbers on any number of ranks.
        index = torch.arange(lanes.start * width, lanes.stop * width)
        env = environments(self._problem, index, seed, device)
        task = env.task.cpu() if self._spaces.tasks > 1 else None
        actor = Actor(
            self._network,
            self._planner,
            index.to(device),
            None if task is None else task.to(device),
            seed,
            self._precision,
            explores=True,
            recorded=self._accelerator.record,
        )
        memory = SequenceReplay(
            lanes,
            settings.memory_rows,
            width,
            columns(self._spaces),
            seed,
            device,
            settings.horizon,
            context=self._spaces.frames - 1,
        )
        return Collector(
            env,
            index,
            lanes,
            memory,
            actor,
            task=task,
            mask=None if task is None else self._spaces.masks()[task],
            steps=settings.n_steps,
            tag=self._problem.name,
            seed=seed,
            watch=self._watch,
            frames=self._spaces.frames,
            restarts=self._problem.restarts,
        )

    @property
    def data_digest(self) -> str:
        """Identifies the recorded data of an offline run; empty if it acts in environments."""
        return self._collectors[0].data_digest

    def state(self) -> Snapshot:
        """Everything needed to resume: each lane with its replay buffer. Called by every rank."""
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
        written = counters["steps"] // self._settings.stride
        return replace(
            self.state(),
            # Adam has no moments before the first gradient update.
            optimizer=self._training.outline() if counters["gradient_updates"] else {},
            lanes={k: v for c in self._collectors for k, v in c.state(written).items()},
        )

    def load(self, snapshot: Snapshot) -> None:
        """Restore a state saved by any number of ranks. Called by every rank."""
        refuse_other_data(snapshot.state.get("data_digest"), self.data_digest)
        self._problem.refuse_inexact_resume(self._world.sync)
        self.model.load_state_dict(snapshot.model)
        self._training.load(snapshot.optimizer)
        self.updates, self.steps = snapshot.state["updates"], snapshot.state["steps"]
        self.gradient_updates = snapshot.state["gradient_updates"]
        self._precision.load(snapshot.state["precision"])
        for collector in self._collectors:
            collector.load(snapshot.lanes, self._rows_written())
