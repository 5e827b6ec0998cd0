"""Plays a run's weights in a process of its own and writes what it shows to stdout, one JSON object a line.

`python -m lockstep.player RUN [--model NAME] [--speed X]`, started by `lockstep watch` when somebody looks, ended when
its stdin is closed. Without --model, newer weights replace older ones as the run writes them. A line is a frame,
`{"drawing": ..., "caption": ..., "step": ...}`, a note, `{"note": ...}`, or the reason why nothing can be shown,
`{"error": ...}`.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from lockstep.errors import LockstepError, NoValidCheckpoint, RunFailed, UserError
from lockstep.storage.stored_models import NEWEST, StoredModel, stored_models

if TYPE_CHECKING:
    from lockstep.cli.model import Subject, TrainedModel
    from lockstep.reporting.film import Scene

_SEED = 2025
"""That of `lockstep eval` and `lockstep play`, so that two players side by side show the same games."""
_FRAMES_PER_SECOND = {"bars": 1.5, "board": 8.0, "charts": 8.0, "picture": 15.0}
"""By the kind of drawing: how fast it can be followed."""
_PAUSE = 1.5
"""Seconds for which the end of an episode is shown."""
_LOOK_EVERY = 2.0
"""Seconds between looks for newer weights."""
_LOWEST_PRIORITY = 19
"""Of niceness, for playing, which goes on for as long as somebody looks. Not for the start: importing torch and a
simulator takes the same seconds of computing at any priority, and minutes beside a busy run at the lowest."""


class _Line:
    """The player's output, apart from what libraries and environments print."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def write(self, **content: Any) -> None:
        """Write one object; RunFailed for a number that JSON does not have."""
        try:
            text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        except ValueError as error:
            raise RunFailed("a number to be shown is infinite or NaN; the run may have diverged") from error
        # Blocks while nobody reads, so the player never runs ahead of those who look.
        self._file.write(text.encode() + b"\n")
        self._file.flush()


def main() -> None:
    """Play until stdin is closed."""
    parser = argparse.ArgumentParser(prog="lockstep.player")
    parser.add_argument("run", type=Path)
    parser.add_argument("--model", default=NEWEST)
    parser.add_argument("--speed", type=float, default=1.0)
    options = parser.parse_args()
    line = _Line()
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        _play(options.run, options.model, options.speed, line)
    except LockstepError as error:
        line.write(error=str(error))
    except BrokenPipeError:
        return
    except Exception as error:  # Somebody else's environment may raise anything; the page says what.
        line.write(error=f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:300]}")


def _end_with_stdin() -> None:
    """End this process with the one that started it, however that ends."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _play(run: Path, name: str, speed: float, line: _Line) -> None:
    _candidates(run, name, line)  # Waits: without weights there is no need for torch yet.
    line.write(note="importing PyTorch")
    import torch

    from lockstep.workloads import registry
    from lockstep.workloads.capabilities import PlayRequest, Plays, Predicts

    torch.set_num_threads(1)
    # Listed again: during the seconds of the import a busy run may have replaced all its checkpoints.
    model, subject, trained = _loaded(_candidates(run, name, line), line)
    plays = registry.require(subject.workload, Plays)
    request = PlayRequest(subject.config, trained.acting(_SEED), _SEED, pictures=True, trained_on=trained.trained_on)
    # A prediction is made for a whole innings at once, so new weights wait for the end of a match: what is shown must
    # be what the step beside it predicted.
    waits = isinstance(subject.workload, Predicts)
    follower = _Follower(run, model, trained, follows=name == NEWEST)
    for number, scene in enumerate(_paced(plays.scenes(request), speed)):
        line.write(
            step=follower.step,
            model=follower.model.name,
            caption=scene.caption,
            ended=scene.ended,
            drawing=scene.drawing.to_json(),
        )
        if number == 0:
            _step_back()
        if scene.ended or not waits:
            follower.look()


def _step_back() -> None:
    """Give this process and its renderers the lowest priority."""
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        if sys.platform == "win32":
            process.nice(psutil.IDLE_PRIORITY_CLASS)
            continue
        # Linux has a niceness for each thread, and a software renderer computes in threads of its own.
        threads = [thread.id for thread in process.threads()] if sys.platform == "linux" else [process.pid]
        for thread in threads:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                os.setpriority(os.PRIO_PROCESS, thread, _LOWEST_PRIORITY)


def _candidates(run: Path, name: str, line: _Line) -> list[StoredModel]:
    """The weights to begin with, best choice first; waits for those of a run that has just started."""
    for attempt in count():
        if chosen := [model for model in stored_models(run) if name in (NEWEST, model.name)]:
            return chosen
        if name != NEWEST:
            raise UserError(f"{name}: no such weights in this run; it may have been replaced by a newer checkpoint")
        if attempt == 0:
            line.write(note="no weights yet: this starts with the run's first checkpoint (--checkpoint-every)")
        time.sleep(_LOOK_EVERY / 2)
    raise AssertionError("unreachable")


def _loaded(candidates: list[StoredModel], line: _Line) -> "tuple[StoredModel, Subject, TrainedModel]":
    """The first of the candidates that is intact; raises the error of the last one if none is."""
    from lockstep.cli import model as models

    for model in candidates:
        line.write(note=f"loading {model.name}, step {model.step:,}")
        try:
            subject = models.find(str(model.path), models.ModelOptions(), [])
            # Always the CPU: memory of a GPU belongs to the run.
            return model, subject, models.load(subject, "cpu")
        except LockstepError as error:
            # Damaged, or removed meanwhile by a newer checkpoint; anything else is wrong with all of them.
            replaceable = isinstance(error, NoValidCheckpoint) or not model.path.is_dir()
            if not replaceable or model is candidates[-1]:
                raise
    raise AssertionError("unreachable")


class _Follower:
    """Loads newer weights into the playing model as a run writes them."""

    def __init__(self, run: Path, model: StoredModel, trained: "TrainedModel", follows: bool) -> None:
        self._run, self.model, self._trained, self._follows = run, model, trained, follows
        self._due = time.monotonic() + _LOOK_EVERY
        self._tried = model

    @property
    def step(self) -> int:
        """Steps that the weights which are playing were trained for."""
        return self.model.step

    def look(self) -> None:
        """Take newer weights, if there are any; at most once in a while."""
        if not self._follows or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _LOOK_EVERY
        newest = next(iter(stored_models(self._run)), self.model)
        # What was damaged once is not read again at every look.
        if newest.step <= self.model.step or newest == self._tried:
            return
        self._tried = newest
        try:
            self._trained.take_weights(newest.path)
        except LockstepError:
            return  # damaged, or removed meanwhile; what plays goes on, and a later look may find another one
        self.model = newest


def _paced(scenes: "Iterator[Scene]", speed: float) -> "Iterator[Scene]":
    """The scenes, no faster than they can be followed."""
    due = time.monotonic()
    for scene in scenes:
        yield scene
        seconds = 1 / _FRAMES_PER_SECOND[scene.drawing.kind] + _PAUSE * scene.ended
        due = max(due + seconds / speed, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0.0))


if __name__ == "__main__":
    main()
