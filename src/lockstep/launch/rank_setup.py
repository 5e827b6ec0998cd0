"""What the launcher prepares for each rank: environment variables, a heartbeat, and files for its output."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from lockstep.launch import environment, heartbeat, rank_process, secret
from lockstep.launch.failures import Exit, last_output
from lockstep.launch.rendezvous import Place, Rendezvous

_OUTER_LAUNCHER = ("MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID")
"""Variables of a launcher (torchrun) that this launcher may itself run under; they do not apply to its ranks."""


@dataclass(frozen=True)
class Output:
    """Where a rank's output goes; None = where the launcher's goes."""

    stdout: Path | None
    stderr: Path | None


class RankSetup:
    """The set-up of this machine's ranks, renewed for each attempt. Ranks here are local ranks.

    The first one keeps the launcher's stdout and stderr, so its live display finds the terminal. The others print
    nothing; their stderr goes to a file that is shown if they fail.
    """

    def __init__(self, folder: Path, ranks: int, threads: int, run_secret: str, rendezvous: Rendezvous | None) -> None:
        self._folder, self._count, self._threads, self._secret = folder, ranks, threads, run_secret
        self._rendezvous = rendezvous
        self._host = platform.node() if rendezvous else ""
        self._first = 0
        self._shared: dict[str, str] = {}
        self.heartbeats: dict[int, heartbeat.Heartbeat] = {}

    def renew(self, place: Place, attempt: int, halvings: int) -> None:
        """Prepare an attempt: this machine's place, the number of earlier attempts, and of micro-batch halvings."""
        self._first = place.first
        self.heartbeats = {
            rank: heartbeat.Heartbeat.create(self._path("heartbeat", rank)) for rank in range(self._count)
        }
        # Files of the last attempt would be reported as this one's.
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
            # Dumps the Python stack on a crash in native code, and on the launcher's SIGABRT to a hung rank.
            "PYTHONFAULTHANDLER": os.environ.get("PYTHONFAULTHANDLER", "1"),
            # A number set by the user wins. Without any, every rank would start a thread for each core of the machine.
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(self._threads)),
        }
        if self._rendezvous is None:
            # A new file for each attempt: the last one holds the addresses of dead ranks.
            self._shared[environment.STORE_FILE] = str(self._folder / f"store-{attempt}")
        else:
            self._shared[environment.RENDEZVOUS] = f"{self._rendezvous.address} {self._rendezvous.port} {place.round}"
            # The round number lets a later world of the job take over the run's lock from an earlier one.
            self._shared[environment.JOB] = f"{place.job}:{place.round}"
            self._shared[environment.ADDRESS] = self._rendezvous.machines.own_address()

    def variables(self, rank: int) -> dict[str, str]:
        """A rank's complete environment."""
        inherited = {name: value for name, value in os.environ.items() if name not in _OUTER_LAUNCHER}
        own = {
            "RANK": str(self._first + rank),
            "LOCAL_RANK": str(rank),
            rank_process.ERROR_FILE_VARIABLE: str(self._path("error", rank)),
            heartbeat.VARIABLE: str(self._path("heartbeat", rank)),
        }
        # Later entries win: nothing that this process inherited can override what the launcher sets.
        return {**inherited, **self._shared, **own}

    def output(self, rank: int) -> Output:
        """Where a rank's output goes."""
        return Output(Path(os.devnull), self._path("stderr", rank)) if rank else Output(None, None)

    def exit_of(self, rank: int, code: int, *, ended_by_launcher: bool, silent: bool, killed_for_memory: bool) -> Exit:
        """How a rank exited, with its output and last heartbeat."""
        output, raised_at = last_output(self._path("error", rank), self.output(rank).stderr)
        return Exit(
            self._first + rank,
            code,
            output,
            raised_at,
            self.heartbeats[rank].read(),
            ended_by_launcher,
            silent,
            self._host,
            killed_for_memory,
        )

    def _path(self, kind: str, rank: int) -> Path:
        return self._folder / f"{kind}-{rank}"
