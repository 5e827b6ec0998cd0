"""What the launcher gives each rank it starts: environment variables, a heartbeat, and files for its output."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from lockstep.launch import environment, heartbeat, rank_process, secret
from lockstep.launch.failures import Exit, last_words
from lockstep.launch.meeting import Meeting, Place

_ANOTHER_LAUNCHERS = ("MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID")
"""Variables of a launcher that this one may itself run under, which are not true of its ranks."""


@dataclass(frozen=True)
class Output:
    """Where a rank's output goes; None = where the launcher's goes."""

    stdout: Path | None
    stderr: Path | None


class RankSetup:
    """The setup of this machine's ranks, renewed for each attempt; they are numbered as they are on this machine.

    The first keeps the launcher's own stdout and stderr, so that its live display finds a terminal where there is one;
    the others are silent, and their stderr is kept for the case that they fail.
    """

    def __init__(self, folder: Path, ranks: int, threads: int, run_secret: str, meeting: Meeting | None) -> None:
        self._folder, self._count, self._threads, self._secret = folder, ranks, threads, run_secret
        self._meeting = meeting
        self._host = platform.node() if meeting else ""
        self._first = 0
        self._shared: dict[str, str] = {}
        self.heartbeats: dict[int, heartbeat.Heartbeat] = {}

    def renew(self, place: Place, attempt: int, halvings: int) -> None:
        """Prepare an attempt: this machine's place in the world, how many came before, how often batches are halved."""
        self._first = place.first
        self.heartbeats = {
            rank: heartbeat.Heartbeat.create(self._path("heartbeat", rank)) for rank in range(self._count)
        }
        for kind in ("error", "stderr"):
            for rank in range(self._count):
                self._path(kind, rank).unlink(missing_ok=True)
        self._shared = {
            "WORLD_SIZE": str(place.size),
            "LOCAL_WORLD_SIZE": str(self._count),
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
            rank_process.HALVINGS_VARIABLE: str(halvings),
            rank_process.LAUNCHER_VARIABLE: str(os.getpid()),
            secret.VARIABLE: self._secret,
            # A crash in native code, or our own SIGABRT to a hung rank, then shows where Python was.
            "PYTHONFAULTHANDLER": os.environ.get("PYTHONFAULTHANDLER", "1"),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(self._threads)),
        }
        if self._meeting is None:
            # A file of its own for each attempt: the last one's holds the addresses of ranks that are dead by now.
            self._shared[environment.STORE_FILE] = str(self._folder / f"store-{attempt}")
        else:
            self._shared[environment.MEETING] = f"{self._meeting.address} {self._meeting.port} {place.round}"
            self._shared[environment.JOB] = f"{place.job}:{place.round}"
            self._shared[environment.ADDRESS] = self._meeting.machines.own_address()

    def variables(self, rank: int) -> dict[str, str]:
        """The whole environment of a rank."""
        inherited = {name: value for name, value in os.environ.items() if name not in _ANOTHER_LAUNCHERS}
        own = {
            "RANK": str(self._first + rank),
            "LOCAL_RANK": str(rank),
            rank_process.ERROR_FILE_VARIABLE: str(self._path("error", rank)),
            heartbeat.VARIABLE: str(self._path("heartbeat", rank)),
        }
        return {**inherited, **self._shared, **own}

    def output(self, rank: int) -> Output:
        """Where a rank's output goes."""
        return Output(Path(os.devnull), self._path("stderr", rank)) if rank else Output(None, None)

    def exit_of(self, rank: int, code: int, *, ended_by_launcher: bool, silent: bool, killed_for_memory: bool) -> Exit:
        """How a rank ended, with what it left behind."""
        told, raised_at = last_words(self._path("error", rank), self.output(rank).stderr)
        return Exit(
            self._first + rank,
            code,
            told,
            raised_at,
            self.heartbeats[rank].read(),
            ended_by_launcher,
            silent,
            self._host,
            killed_for_memory,
        )

    def _path(self, kind: str, rank: int) -> Path:
        return self._folder / f"{kind}-{rank}"
