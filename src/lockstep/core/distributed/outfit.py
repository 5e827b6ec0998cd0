"""What the launcher gives each rank: its variables, its pulse, and a place for its output."""

import os
import platform
from pathlib import Path

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs

from lockstep.core import launch, pulse
from lockstep.core.distributed import environment
from lockstep.core.distributed.failures import Exit, last_words
from lockstep.core.distributed.rendezvous import Meeting


class Outfit(LogsSpecs):
    """The outfit of this machine's ranks, renewed for each attempt; they are numbered as they are on this machine.

    The first keeps the launcher's own stdout and stderr, so that its live display finds a terminal where there is one;
    the others are silent, and their stderr is kept for the case that they fail.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        super().__init__(str(folder))
        self._folder, self._threads = folder, threads
        self._ranks: dict[int, int] = {}
        self._host = ""
        self._variables: dict[str, str] = {}
        self.pulses: dict[int, pulse.Pulse] = {}

    @property
    def root_log_dir(self) -> str:
        """Where all of it is."""
        return str(self._folder)

    def renew(self, ranks: dict[int, int], meeting: Meeting, halvings: int) -> None:
        """Prepare the next attempt: which ranks of the world this machine's are, and what its meeting has settled."""
        self._ranks = ranks
        self._variables = {launch.HALVINGS_VARIABLE: str(halvings)}
        if meeting.machines is not None:
            self._host = platform.node()
            self._variables[environment.JOB] = f"{meeting.job()}:{meeting.epoch}"
            self._variables[environment.ADDRESS] = meeting.machines.own_address()

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Fit out the ranks of a new attempt; called by the agent, which merges `envs` into its own environment."""
        self.pulses = {rank: pulse.Pulse.create(self._path("pulse", rank)) for rank in sorted(envs)}
        for rank, variables in envs.items():
            self._path("error", rank).unlink(missing_ok=True)
            variables.update(self._variables)
            variables[launch.ERROR_FILE_VARIABLE] = str(self._path("error", rank))
            variables[launch.LAUNCHER_VARIABLE] = str(os.getpid())
            variables[pulse.VARIABLE] = str(self._path("pulse", rank))
            variables.setdefault("OMP_NUM_THREADS", str(self._threads))
            # A crash in native code, or our own SIGABRT to a hung rank, then shows where Python was.
            variables["PYTHONFAULTHANDLER"] = os.environ.get("PYTHONFAULTHANDLER", "1")
        return LogsDest(
            stdouts={rank: os.devnull if rank else "" for rank in envs},
            stderrs={rank: str(self._path("stderr", rank)) if rank else "" for rank in envs},
            error_files={rank: str(self._path("error", rank)) for rank in envs},
        )

    def exit_of(self, rank: int, code: int, *, ended_by_launcher: bool, silent: bool, killed_for_memory: bool) -> Exit:
        """How a rank ended, with what it left behind."""
        log = self._path("stderr", rank) if rank else None
        told, raised_at = last_words(self._path("error", rank), log)
        return Exit(
            self._ranks[rank],
            code,
            told,
            raised_at,
            self.pulses[rank].read(),
            ended_by_launcher,
            silent,
            self._host,
            killed_for_memory,
        )

    def _path(self, kind: str, rank: int) -> Path:
        return self._folder / f"{kind}-{rank}"
