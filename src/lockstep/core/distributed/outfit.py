"""What the launcher gives each rank: its variables, its pulse, and a place for its output."""

import os
from pathlib import Path

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs

from lockstep.core import launch, pulse
from lockstep.core.distributed.failures import Exit, last_words


class Outfit(LogsSpecs):
    """The outfit of all ranks, renewed for each attempt.

    Rank 0 keeps the launcher's own stdout and stderr, so that its live display finds a terminal where there is one;
    the others are silent, and their stderr is kept for the case that they fail.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        super().__init__(str(folder))
        self._folder, self._threads = folder, threads
        self.pulses: list[pulse.Pulse] = []

    @property
    def root_log_dir(self) -> str:
        """Where all of it is."""
        return str(self._folder)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Fit out the ranks of a new attempt; called by the agent, which merges `envs` into its own environment."""
        self.pulses = [pulse.Pulse.create(self._path("pulse", rank)) for rank in sorted(envs)]
        for rank, environment in envs.items():
            self._path("error", rank).unlink(missing_ok=True)
            environment[launch.ERROR_FILE_VARIABLE] = str(self._path("error", rank))
            environment[launch.LAUNCHER_VARIABLE] = str(os.getpid())
            environment[pulse.VARIABLE] = str(self._path("pulse", rank))
            environment.setdefault("OMP_NUM_THREADS", str(self._threads))
            # A crash in native code, or our own SIGABRT to a hung rank, then shows where Python was.
            environment["PYTHONFAULTHANDLER"] = os.environ.get("PYTHONFAULTHANDLER", "1")
        return LogsDest(
            stdouts={rank: os.devnull if rank else "" for rank in envs},
            stderrs={rank: str(self._path("stderr", rank)) if rank else "" for rank in envs},
            error_files={rank: str(self._path("error", rank)) for rank in envs},
        )

    def exit_of(self, rank: int, code: int, *, ended_by_launcher: bool, silent: bool) -> Exit:
        """How a rank ended, with what it left behind."""
        log = self._path("stderr", rank) if rank else None
        told, raised_at = last_words(self._path("error", rank), log)
        return Exit(rank, code, told, raised_at, self.pulses[rank].read(), ended_by_launcher, silent)

    def _path(self, kind: str, rank: int) -> Path:
        return self._folder / f"{kind}-{rank}"
