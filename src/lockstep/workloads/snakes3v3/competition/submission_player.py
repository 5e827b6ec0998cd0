"""Other people's submissions as players: each in a process of its own that can do nothing but answer."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.untrusted import parse_json
from lockstep.workloads.snakes3v3.competition.interface import DIRECTIONS, decode
from lockstep.workloads.snakes3v3.competition.position import position
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import FIRST_SNAKE

FILE = "submission.py"
SANDBOX = Path(__file__).with_name("sandbox.py")
"""The program around a submission. It is not imported here: it needs modules that only some systems have."""
_LARGEST_FOLDER = 256 << 20
_MOST_FILES = 2000
_LONGEST_ANSWER = 4096
# Seconds.
_STARTING, _ENDING = 20.0, 5.0
GIVE_UP = 3
"""Failed games in a row after which the rest is not tried any more: each may cost the whole time limit."""


class Failed(Exception):
    """A submission broke the rules; the message is one line."""


class SubmissionProcess:
    """One process that plays one game at a time."""

    def __init__(self, folder: Path, memory: int, isolated: bool) -> None:
        self._root = tempfile.mkdtemp(prefix="lockstep-arena-")
        os.chmod(self._root, 0o755)  # noqa: PTH101 - seen by the sandbox's own user
        words = [str(folder), self._root, str(memory), "yes" if isolated else "no"]
        # -I: nothing of the user's environment or folders is imported, nor do secrets in variables reach it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(SANDBOX), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "HOME": "/tmp", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            cwd=self._root,
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout
        self._questions, self._answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        # A process that does not read must not make us wait.
        os.set_blocking(self._questions, False)
        self._isolated = isolated
        self._unread = b""
        self._loaded = False
        try:
            first = self._receive(_STARTING)
        except Failed:
            self.close()
            raise
        if first != {"ready": True}:
            self.close()
            reason = first.get("refused", "") if isinstance(first, dict) else ""
            raise UserError(
                f"this machine cannot confine a submission ({shown(str(reason))}); allowed: Linux with user "
                "namespaces, or --trust to run it with your own rights"
            )

    def ask(self, observations: list[dict[Any, Any]], limit: float) -> list[int]:
        """The actions of a team's snakes; Failed if there is no valid answer within the limit."""
        if not self._loaded:
            # Importing and reading weights may take longer than a move.
            self._expect_move(self._receive(_STARTING))
            self._loaded = True
        if self._unread or select.select([self._answers], [], [], 0)[0]:
            raise Failed("answered before it was asked, or its process ended")
        self._send(json.dumps(observations).encode() + b"\n", limit)
        return _actions(self._expect_move(self._receive(limit)), len(observations))

    @staticmethod
    def _expect_move(answer: Any) -> Any:
        """The answer itself, unless it says that the submission raised an error."""
        if isinstance(answer, dict) and isinstance(failed := answer.get("failed"), str):
            raise Failed(f"raised {shown(failed)}")
        return answer

    def _send(self, question: bytes, limit: float) -> None:
        deadline = time.monotonic() + limit
        try:
            while question:
                if not select.select([], [self._questions], [], max(deadline - time.monotonic(), 0))[1]:
                    raise Failed(f"took longer than {limit:g} s")
                question = question[os.write(self._questions, question) :]
        except OSError as error:
            raise Failed("its process ended") from error

    def _receive(self, limit: float) -> Any:
        deadline = time.monotonic() + limit
        while b"\n" not in self._unread:
            if not select.select([self._answers], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise Failed(f"took longer than {limit:g} s")
            piece = os.read(self._answers, _LONGEST_ANSWER)
            self._unread += piece
            if not piece or len(self._unread) > _LONGEST_ANSWER:
                raise Failed("answered with too much" if piece else "its process ended")
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            return parse_json(line)
        except ValueError as error:
            raise Failed("its answer is not JSON") from error

    def close(self) -> None:
        """End the process and everything it started."""
        with suppress(OSError):
            # An isolated one is ended by its guard; otherwise whatever is still in its group.
            if self._isolated:
                self._process.terminate()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if pipe:
                    pipe.close()
        shutil.rmtree(self._root, ignore_errors=True)


def _actions(answer: Any, count: int) -> list[int]:
    if not isinstance(answer, list) or len(answer) != count:
        raise Failed(f"answered {shown(json.dumps(answer))}")
    try:
        return decode(answer)
    except (UserError, TypeError, ValueError) as error:
        raise Failed(f"answered {shown(json.dumps(answer))}, not one-hot lists such as [[0, 0, 0, 1]]") from error


class SubmissionTeam:
    """A submission as a policy for several boards, with a process for each: a process plays one game at a time."""

    def __init__(self, path: Path, limit: float, memory: int, isolated: bool) -> None:
        """`limit`: seconds for the moves of a team. `memory`: bytes of a process."""
        self._limit, self._memory, self._isolated = limit, memory, isolated
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-submission-")
        _copy(path, Path(self._folder.name))
        self._processes: dict[int, SubmissionProcess] = {}
        self._game: SnakesGame | None = None
        self._directions: dict[int, list[str]] = {}
        self._in_a_row = 0
        self.failures: list[dict[int, str]] = []
        """For each batch of games: the boards on which it lost by breaking the rules, and how."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.close()
        self._folder.cleanup()

    def __call__(self, game: SnakesGame, players: Sequence[int]) -> Tensor:
        """The actions (E, A) of some players on every board; where it has failed, they keep going up."""
        if game is not self._game:
            self._game = game
            self.failures.append({})
        boards = [self._on_board(game, board, list(players)) for board in range(game.count)]
        return torch.tensor(boards, device=game.device)

    def _on_board(self, game: SnakesGame, board: int, players: list[int]) -> list[int]:
        failures, nothing = self.failures[-1], [0] * len(players)
        if board in failures:
            return nothing
        if self._in_a_row >= GIVE_UP:
            failures[board] = f"not asked any more after {GIVE_UP} failures in a row"
            return nothing
        try:
            actions = self._process(board).ask(self._observations(game, board, players), self._limit)
        except Failed as failure:
            failures[board] = str(failure)
            self._in_a_row += 1
            # It may have failed before it was even started.
            if board in self._processes:
                self._processes.pop(board).close()
            return nothing
        if int(game.time[board]) == game.rules.max_steps:
            self._in_a_row = 0
        return actions

    def _process(self, board: int) -> SubmissionProcess:
        if board not in self._processes:
            self._processes[board] = SubmissionProcess(Path(self._folder.name), self._memory, self._isolated)
        return self._processes[board]

    def _observations(self, game: SnakesGame, board: int, players: list[int]) -> list[dict[Any, Any]]:
        """What the platform shows each of the players; see `CompetitionGame.all_observes`."""
        now = position(game, board)
        before = None if now.time == 1 else self._directions.get(board)
        self._directions[board] = [DIRECTIONS[direction] for direction in now.directions]
        seen: dict[Any, Any] = {1: now.beans}
        seen |= {FIRST_SNAKE + player: snake for player, snake in enumerate(now.snakes)}
        seen |= {"board_width": game.rules.width, "board_height": game.rules.height, "last_direction": before}
        return [{**seen, "controlled_snake_index": FIRST_SNAKE + player} for player in players]


def _copy(path: Path, folder: Path) -> None:
    """Copy a submission with the files beside it, so that its process sees these and nothing else."""
    source = path.parent if path.is_file() else path
    if not (source / FILE).is_file():
        raise UserError(f"{shown(str(path))}: no submission; allowed: a file or folder with {FILE}")
    os.chmod(folder, 0o755)  # noqa: PTH101
    size = count = 0
    for place, folders, names in os.walk(source):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        target = folder / Path(place).relative_to(source)
        target.mkdir(exist_ok=True, mode=0o755)
        for file in (Path(place) / name for name in names):
            if file.is_symlink() or not file.is_file():
                continue
            size, count = size + file.stat().st_size, count + 1
            if size > _LARGEST_FOLDER or count > _MOST_FILES:
                raise UserError(
                    f"{shown(str(source))}: more than {_LARGEST_FOLDER >> 20} MB or {_MOST_FILES:,} files beside "
                    f"{FILE}; put the submission into a folder of its own"
                )
            shutil.copyfile(file, target / file.name)
            os.chmod(target / file.name, 0o644)  # noqa: PTH101
