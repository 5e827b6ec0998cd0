"""A session: one world working on one run, from opening its directory to its final weights."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lockstep import failpoints
from lockstep.config.config import AnyConfig
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.errors import LockstepError, NoValidCheckpoint, StoppedOnRequest
from lockstep.launch.heartbeat import FINISHED, Heartbeat
from lockstep.launch.stop_request import Interrupted
from lockstep.reporting.display import Detail, Display, Narrated, Narrator, open_display
from lockstep.reporting.journal import Journal
from lockstep.reporting.log_sinks import LoggedRun
from lockstep.run import arithmetic, consensus
from lockstep.run.learner import Learner
from lockstep.run.loop import Loop
from lockstep.run.opened_directory import disk_errors, opened
from lockstep.run.resumption import Resumption
from lockstep.run.starting_point import StepBack, is_checkpoint
from lockstep.run.warm_start import ModelReader, warm_start
from lockstep.storage import checkpoint, weights
from lockstep.storage.async_checkpointer import AsyncCheckpointer, SaveRequest
from lockstep.storage.checkpoint_retention import CHECKPOINTS
from lockstep.storage.manifest import COMPUTED_WITH, MADE_WITH, step_name
from lockstep.storage.outline import AFTER_UPDATE
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.run_events import Kind, note
from lockstep.storage.run_status import RunFacts, State
from lockstep.storage.set_aside import is_aside, set_aside
from lockstep.untrusted import is_folder

Build = Callable[[AnyConfig, World], Learner]
T = TypeVar("T")


class Session:
    """What a run's directory and its learner do together. Every method is called by every rank."""

    def __init__(
        self,
        run: RunDirectory,
        workload: str,
        config: AnyConfig,
        world: World,
        learner: Learner,
        say: Callable[[str], None],
        may_publish: Callable[[], None],
        facts: RunFacts,
    ) -> None:
        self._facts = facts
        # The state before a long update, which a stop would abandon.
        self._kept: SaveRequest | None = None
        # The update at which the same command would begin: that of the last checkpoint, or the first.
        self._begins_at = 0
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
            keep=config.run.keep,
            written=self._note_saved,
            say=say,
            may_publish=self._make_ready,
        )

    def resume(self, notes: dict[str, Any], back: StepBack | None = None) -> bool:
        """Take up the newest checkpoint that verifies and fits, if there is one; or the one to go `back` to.

        Going back sets aside what came later, after the checkpoint was loaded: a refused resume changes nothing.
        """
        failpoints.reach("resume")
        root = self._run.path
        # A restart after the run went back continues from the newest one, as always.
        if back is not None and self._world.led(partial(is_aside, root, back.aside)):
            back = None
        only = root / CHECKPOINTS / back.checkpoint if back else None
        found = self._resumption(self._run, only).take_up()
        if found is None:
            return False
        path, remembered = found
        notes |= remembered
        self._begins_at = self.learner.updates
        self._say(f"resumed from {path.name} (update {self.learner.updates:,})")
        if back is not None:
            self._say(self._led_on_disk(partial(set_aside, root, self.learner.steps, back.aside)))
        # The best so far may have been set aside, or removed by the user; then the next evaluation is the best.
        if not self._world.led(lambda: is_folder(root / "best")):
            notes["best"] = -math.inf
        return True

    def _resumption(self, run: RunDirectory, only: Path | None) -> Resumption:
        return Resumption(run, self._workload, self._config, self._world, self.learner, self._say, only)

    def begin(self, notes: dict[str, Any], reader: ModelReader | None) -> None:
        """Start a new run from what its configuration names: another run's checkpoint, a model's weights or nothing."""
        origin = self._config.run
        if origin.branch_from:
            self._branch(Path(origin.branch_from), notes)
        elif origin.load_model:
            assert reader is not None, "a run with a load_model needs its workload to read it"
            for line in warm_start(self.learner, self._world, self._config, reader):
                self._say(line)

    def _branch(self, source: Path, notes: dict[str, Any]) -> None:
        # Best score and seconds of training stay behind with the source: this run has no best/ yet.
        single = self._world.led(lambda: is_checkpoint(source))
        run = RunDirectory(source.parents[1] if single else source)
        found = self._resumption(run, source if single else None).take_up()
        if found is None:
            raise NoValidCheckpoint(f"{source}: has no checkpoint to branch from")
        # What its last update is to be followed by may decide how the training goes on.
        notes |= {name: found[1][name] for name in found[1] if name == AFTER_UPDATE}
        self._say(f"branched from {found[0]} (update {self.learner.updates:,})")

    def write_config(self) -> None:
        """Make this the run's configuration: after `resume`, since one that is refused must leave the run alone."""
        learner = self.learner
        facts = replace(
            self._facts,
            ranks=self._world.size,
            sync=self._world.sync,
            total_steps=learner.total_steps,
            score_name=learner.score_name,
            lower_is_better=learner.lower_is_better,
        )
        self._led_on_disk(lambda: self._run.write_config(self._config_text, self._workload, facts))

    def _led_on_disk(self, write: Callable[[], T]) -> T:
        def on_disk() -> T:
            with disk_errors():
                return write()

        return self._world.led(on_disk)

    def save(self, notes: dict[str, Any]) -> None:
        """Begin a checkpoint of the run as it is now; it is written while the training continues."""
        self._checkpointer.save(self._request(notes))
        self._begins_at = self.learner.updates

    def _request(self, notes: dict[str, Any]) -> SaveRequest:
        snapshot = self.learner.state()
        snapshot.state["loop"] = dict(notes)
        extra: dict[str, Any] = {"updates": self.learner.updates, "sync": self._world.sync}
        extra[MADE_WITH] = self._config_text
        if self._world.sync == "exact":
            extra[COMPUTED_WITH] = arithmetic.identity(self._config.run, self._world)
        extra |= _data_of(self.learner)
        return SaveRequest(snapshot, self.learner.steps, extra)

    def keep(self, notes: dict[str, Any]) -> None:
        """Keep the run as it is now for `save_kept`, unless a restart would begin here anyway, or memory is short."""
        # The last one first: there need not be room for both.
        self._kept = None
        if self._begins_at == self.learner.updates:
            return
        request = self._request(notes)
        # A checkpoint has parts of all ranks, so all of them keep theirs or none does.
        if not self._world.agree(int(not request.fits_twice())):
            self._kept = request.copy()

    def save_kept(self) -> str:
        """Write what was kept; returns where a restart begins."""
        if self._kept is not None:
            fingerprint = checkpoint.weights_hash(self._kept.snapshot.model)
            self._world.check_replicas(fingerprint, f"step {self._kept.step:,}")
            self._checkpointer.save(self._kept)
        self._checkpointer.settle()
        if self._kept is None and (lost := self.learner.updates - self._begins_at):
            return f"{lost} update(s) are lost: the same command continues from the newest checkpoint"
        if not self.learner.updates:
            return "nothing to save yet: the same command starts anew"
        return "saved: the same command continues from there"

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

    def _note_saved(self, order: SaveRequest) -> None:
        self._run.write_status("running", order.step, order.snapshot.state["loop"]["best"])
        note(self._run.path, "checkpoint", step_name(order.step), order.step)

    def note_event(self, kind: Kind, text: str) -> None:
        """Add to the run's events; rank 0 writes. May be called by some ranks only."""
        self._run.note_event(self._world, kind, text, self.learner.steps)

    def keep_weights(self, name: str, score: float) -> None:
        """Keep the weights alone as best/ or final/; where the disk refuses, all ranks raise alike."""
        self._world.led(lambda: self._write_weights(name, score))

    def _write_weights(self, name: str, score: float) -> None:
        self._may_publish()
        weights.save_weights(
            self._run.path / name,
            dict(self.learner.model.state_dict()),
            config_text=self._config_text,
            workload=self._workload,
            step=self.learner.steps,
            extra={"score": score if math.isfinite(score) else None, **_data_of(self.learner)},
        )
        if name == "best":
            self._run.note_best(score)


def _data_of(learner: Learner) -> dict[str, Any]:
    """What a manifest tells of the data, where there is any."""
    # A record holds the digest, too.
    about = {"data": dict(learner.data_record)} if learner.data_record else {"data_digest": learner.data_digest}
    return {name: value for name, value in (about | {"sample": learner.sample}).items() if value}


def train(
    run: RunDirectory,
    workload: str,
    config: AnyConfig,
    world: World,
    build: Build,
    plan: list[str],
    narrator: Narrator | None = None,
    *,
    step_back: StepBack | None = None,
    reader: ModelReader | None = None,
    facts: RunFacts | None = None,
    detail: Detail = "normal",
) -> Learner:
    """Train a run to its end, from its newest checkpoint if it has one. Called by every rank.

    `step_back`: an earlier checkpoint to resume from. `reader`: the workload, for a `load_model`. `facts`: the preset
    and what differs from it, for lists of runs. `detail`: how much is shown.
    """
    world = world.with_lanes(config.effective_lanes, config.sync_on(world.device.type))
    with arithmetic.restored(), opened(run, world) as may_publish:
        arithmetic.fix(config.run, world)
        display = open_display(world, config.headline, detail)
        # Before the environments are built or data is read, which can take minutes.
        for line in plan:
            display.say(line)
        learner = build(config, world)
        consensus.compare(world, consensus.data_facts(learner.data_digest))
        session = Session(run, workload, config, world, learner, display.say, may_publish, facts or RunFacts())
        try:
            notes: dict[str, Any] = {}
            resumed = session.resume(notes, step_back)
            if not resumed:
                session.begin(notes, reader)
            narrator = narrator if detail == "verbose" else None
            return _conduct(session, run, config, world, learner, display, narrator, notes, resumed)
        finally:
            display.close()


def _conduct(
    session: Session,
    run: RunDirectory,
    config: AnyConfig,
    world: World,
    learner: Learner,
    display: Display,
    narrator: Narrator | None,
    notes: dict[str, Any],
    resumed: bool,
) -> Learner:
    """Train from where the learner is now; `notes`: the loop's, from the checkpoint that the run begins with."""
    failpoints.reach("resume")
    session.write_config()
    failpoints.reach("resume")
    logged = LoggedRun(
        directory=run.path,
        # A log point of an update that was stopped before its evaluation is still to come.
        resume_step=learner.steps - (AFTER_UPDATE in notes) if resumed else None,
        project=config.run.wandb_project,
        entity=config.run.wandb_entity,
        settings=config.values(),
        score=f"eval/{learner.score_name}",
    )
    journal = Journal.open(logged, world, config.run.logger_names, session.still_ours)
    if narrator is not None:
        display = Narrated(display, narrator, journal.past())
    failpoints.reach("resume")
    session.before_publishing = journal.sync
    loop = Loop(learner, world, config, journal, session, display)
    loop.notes |= notes
    journal.start(learner.steps)
    fingerprint = loop.compare_replicas()
    whose = f"{world.size} ranks hold the same" if world.size > 1 else "1 rank holds the"
    display.say(f"{whose} weights (sha256 {fingerprint[:16]})")
    ranks = f"on {world.size} rank{'s' if world.size > 1 else ''}"
    session.note_event("resumed" if resumed else "started", f"{ranks}, update {learner.updates:,}")
    status: State = "stopped"
    in_a_hurry = True
    try:
        if config.run.branch_from and not resumed:
            # At once: from here on the branch needs its source no more.
            session.save(loop.notes)
        if learner.done() and AFTER_UPDATE not in notes:
            display.conclude(f"the run is at its end: give it more with {config.length_flag} N")
        display.begin(learner.total_steps)
        loop.run()
        session.keep_weights("final", loop.notes["best"])
        display.close()  # the last line of progress comes first
        display.conclude(f"done: {learner.steps:,} steps, {learner.updates:,} updates, {run.path}")
        if learner.done():
            status = "finished"
            session.note_event("finished", "complete")
        else:
            most = config.run.max_updates
            limit = "max-updates" if most and learner.updates >= most else "max-hours"
            display.conclude(f"stopped by --{limit}; raise it, or set it to 0, and rerun to continue")
            session.note_event("stopped", f"by --{limit}")
        in_a_hurry = False
    except LockstepError as error:
        # Whatever else ends a rank, a launcher notes: it knows which rank was the cause.
        stopped = error.exit_code in (StoppedOnRequest.exit_code, Interrupted.exit_code)
        session.note_event("stopped" if stopped else "failed", str(error))
        raise
    finally:
        journal.close(in_a_hurry=in_a_hurry)
        run.note_end(world, status, learner.steps, loop.notes["best"])
    Heartbeat.of_this_rank().tell(learner.steps, FINISHED)
    return learner
