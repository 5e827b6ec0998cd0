"""A session: one world working on one run, from opening its directory to its final weights."""

import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterator

import torch

from lockstep import failpoints
from lockstep.compute import kernels, random
from lockstep.compute.machine import is_arm
from lockstep.config.run_config import RunConfig
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.errors import LockstepError, RunFailed, error_of
from lockstep.launch.environment import job, local_size
from lockstep.launch.heartbeat import FINISHED, Heartbeat
from lockstep.launch.resources import threads_per_rank
from lockstep.reporting.display import Display, Narrated, Narrator, open_display
from lockstep.reporting.journal import Journal
from lockstep.reporting.metrics import MetricsLog
from lockstep.reporting.monitor import Telemetry
from lockstep.run import consensus
from lockstep.run.learner import Learner, data_digest
from lockstep.run.loop import Loop
from lockstep.run.resumption import MADE_WITH, Resumption
from lockstep.storage import checkpoint, checkpoint_retention, weights
from lockstep.storage.async_checkpointer import AsyncCheckpointer, Order
from lockstep.storage.run_directory import RunDirectory, State

Build = Callable[[RunConfig, World], Learner]
_log = logging.getLogger(__name__)


class Session:
    """What a run's directory and its learner do together. Every method is called by every rank."""

    def __init__(
        self,
        run: RunDirectory,
        workload: str,
        config: RunConfig,
        world: World,
        learner: Learner,
        say: Callable[[str], None],
        may_publish: Callable[[], None],
    ) -> None:
        self._run, self._workload, self._world, self._say = run, workload, world, say
        self.learner = learner
        self._config = config
        self._may_publish = may_publish
        self.before_publishing: Callable[[], None] = lambda: None
        """Done on rank 0 before a checkpoint gets its name: a resume from it must find what came before it."""
        self._config_text = to_yaml(config)
        self._checkpointer = AsyncCheckpointer(
            run.path,
            world,
            workload,
            keep=config.keep,
            written=self._note_saved,
            say=say,
            may_publish=self._make_ready,
        )

    def resume(self, notes: dict[str, float]) -> bool:
        """Take up the newest checkpoint that verifies and fits, if there is one."""
        failpoints.reach("resume")
        resumption = Resumption(self._run, self._workload, self._config, self._world, self.learner, self._say)
        found = resumption.take_up()
        if found is None:
            return False
        path, remembered = found
        notes |= remembered
        self._say(f"resumed from {path.name} (update {self.learner.updates:,})")
        return True

    def write_config(self) -> None:
        """Make this the run's configuration: after `resume`, since one that is refused must leave the run alone."""
        _by_leader(self._world, lambda: self._run.write_config(self._config_text, self._workload))

    def save(self, notes: dict[str, float]) -> None:
        """Begin a checkpoint of the run as it is now; it is written while the training goes on."""
        snapshot = self.learner.state()
        snapshot.state["loop"] = dict(notes)
        extra = {"updates": self.learner.updates, "sync": self._world.sync, MADE_WITH: self._config_text}
        extra |= _data_of(self.learner)
        self._checkpointer.save(Order(snapshot, self.learner.steps, extra))

    def _make_ready(self) -> None:
        self._may_publish()
        self.before_publishing()

    def still_ours(self) -> None:
        """Raise RunFailed where the directory was moved, deleted or taken over. Rank 0 only."""
        # A network file system that does not answer for a moment is no proof of that.
        with contextlib.suppress(OSError):
            self._may_publish()

    def settle(self) -> None:
        """Wait until the checkpoint that was begun last stands; raises CheckpointFailed where it cannot."""
        self._checkpointer.settle()

    def _note_saved(self, order: Order) -> None:
        self._run.write_status("running", order.step, order.snapshot.state["loop"]["best"])

    def keep_weights(self, name: str, score: float) -> None:
        """Keep the weights alone as best/ or final/; where the disk refuses, all ranks raise alike."""
        problem = None
        if self._world.leads:
            try:
                self._may_publish()
                self._write_weights(name, score)
            except LockstepError as error:
                problem = str(error), isinstance(error, checkpoint.CheckpointFailed)
        if problem := self._world.from_leader(problem):
            words, by_disk = problem
            # A disk may have room later; a directory that is no longer this run's does not come back.
            raise checkpoint.CheckpointFailed(words) if by_disk else RunFailed(words)

    def _write_weights(self, name: str, score: float) -> None:
        weights.save_weights(
            self._run.path / name,
            dict(self.learner.model.state_dict()),
            config_text=self._config_text,
            workload=self._workload,
            step=self.learner.steps,
            extra={"score": score if math.isfinite(score) else None, **_data_of(self.learner)},
        )


def _data_of(learner: Learner) -> dict[str, str]:
    """What a manifest tells of the data, where there is any."""
    digest = data_digest(learner)
    return {"data_digest": digest} if digest else {}


def train(
    run: RunDirectory,
    workload: str,
    config: RunConfig,
    world: World,
    build: Build,
    plan: list[str],
    narrator: Narrator | None = None,
) -> Learner:
    """Train a run to its end, from its newest checkpoint if it has one. Called by every rank."""
    world = world.with_lanes(config.effective_lanes, config.sync)
    fix_arithmetic(config, world)
    with _opened(run, world) as may_publish:
        learner = build(config, world)
        consensus.compare(world, consensus.data_facts(data_digest(learner)))
        display = open_display(world.leads, learner.total_steps, config.headline)
        session = Session(run, workload, config, world, learner, display.say, may_publish)
        try:
            for line in plan:
                display.say(line)
            return _conduct(session, run, config, world, learner, display, narrator)
        finally:
            display.close()


def _conduct(
    session: Session,
    run: RunDirectory,
    config: RunConfig,
    world: World,
    learner: Learner,
    display: Display,
    narrator: Narrator | None,
) -> Learner:
    telemetry = Telemetry() if world.leads else None
    loop_notes: dict[str, float] = {}
    resumed = session.resume(loop_notes)
    failpoints.reach("resume")
    session.write_config()
    failpoints.reach("resume")
    wandb = config.about_to_wandb() if config.wandb else None
    log = MetricsLog(run.path, learner.steps if resumed else None, wandb=wandb) if world.leads else None
    if narrator is not None and log is not None:
        display = Narrated(display, narrator, log.rows())
    failpoints.reach("resume")
    journal = Journal(run.path, world, log, telemetry, session.still_ours)
    session.before_publishing = journal.sync
    loop = Loop(learner, world, config, journal, session, display)
    loop.notes |= loop_notes
    journal.start(learner.steps)
    fingerprint = loop.compare_replicas()
    display.say(f"{world.size} rank(s) hold the same weights (sha256 {fingerprint[:16]})")
    status: State = "stopped"
    try:
        if learner.done():
            display.say(f"the run is at its end: give it more with --{config.length_field.replace('_', '-')} N")
        loop.run()
        session.keep_weights("final", loop.notes["best"])
        display.close()  # the last line of progress comes first
        display.say(f"done: {learner.steps:,} steps, {learner.updates:,} updates, {run.path}")
        if learner.done():
            status = "finished"
        else:
            limit = "max_updates" if config.max_updates and learner.updates >= config.max_updates else "max_hours"
            more = f"--{limit.replace('_', '-')}"
            display.say(f"{limit} ended it before its end; with more of that, or {more} 0, the same command goes on")
    finally:
        journal.close()
        if world.leads:
            run.write_status(status, learner.steps, loop.notes["best"])
    Heartbeat.of_this_rank().tell(learner.steps, FINISHED)
    return learner


@contextlib.contextmanager
def _opened(run: RunDirectory, world: World) -> Iterator[Callable[[], None]]:
    """The run's directory, written to by this world only; where rank 0 cannot have it, all ranks raise its error.

    Gives what raises on rank 0 once a later world has taken the directory over.
    """
    check: Callable[[], None] = lambda: None  # noqa: E731
    with contextlib.ExitStack() as stack:

        def open_it() -> None:
            nonlocal check
            # A launcher of ours has made the directory; where another started the ranks, it goes with a refused start.
            stack.enter_context(run.prepared(keeps=job() is not None))
            check = stack.enter_context(run.locked(job())).check
            checkpoint_retention.sweep(run.path)
            run.write_system(world)

        _by_leader(world, open_it)
        yield check


def _by_leader(world: World, act: Callable[[], None]) -> None:
    """Do something on rank 0; where it cannot be done, all ranks raise alike. Called by every rank."""
    problem: tuple[str, int] | None = None
    if world.leads:
        try:
            act()
        except LockstepError as error:
            problem = str(error), error.exit_code
        except OSError as error:
            where = error.filename or "the run's directory"
            words = f"{where}: cannot be written ({error.strerror}); make room, then the same command goes on"
            problem = words, RunFailed.exit_code
    if problem := world.from_leader(problem):
        raise error_of(*problem)


def settle_kernels(world: World) -> None:
    """Use kernels of our own where all ranks can: they round otherwise than the same step by step. By every rank."""
    hindrance = kernels.hindrance()
    trouble = random.kernel_trouble(world.device) if world.device.type == "cuda" and hindrance is None else None
    if trouble is not None:
        _log.warning("rank %d: a kernel on trial failed (%s); it is slower without them", world.rank, trouble)
    kernels.use(not world.agree(hindrance is not None or trouble is not None))


def fix_arithmetic(config: RunConfig, world: World, *, tf32: bool = True) -> None:
    """Settle what moves bits: threads in every mode; in exact also which kernels may be used.

    `tf32`: whether products of fp32 numbers may be rounded to 10 bits where that is usual; verify may not.
    """
    threads = config.threads or (1 if world.sync == "exact" else threads_per_rank(local_size()))
    torch.set_num_threads(threads)
    if is_arm() and world.device.type == "cpu" and config.precision in ("auto", "fp32"):
        # oneDNN prepares every product anew there, which takes longer than a small one; convolutions ask for it again.
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    settle_kernels(world)
    torch.set_float32_matmul_precision("high" if world.sync == "fast" and tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    # Kernels chosen by a timing, or that add in the order of arrival, give other bits in every process.
    torch.backends.cudnn.benchmark = not config.deterministic
    torch.use_deterministic_algorithms(config.deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
