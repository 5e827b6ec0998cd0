"""What happens after ranks have exited: success, a restart, or an exit code. Decisions only, without side effects."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lockstep.errors import NoValidCheckpoint, RunFailed, StoppedOnRequest, UserError
from lockstep.launch.failures import Exit, cause, report

INTERRUPTED = 130
DELIBERATE = frozenset(
    {UserError.exit_code, RunFailed.exit_code, NoValidCheckpoint.exit_code, StoppedOnRequest.exit_code, INTERRUPTED}
)
"""Exit codes that say a restart would not help or is not wanted."""
_MAKES_ROOM = {0, StoppedOnRequest.exit_code, INTERRUPTED, -getattr(signal, "SIGUSR1", signal.SIGTERM)}
"""Exit codes of ranks that were asked to save because machines join or leave."""
_LONGEST_WAIT = 60.0
"""Upper bound of the exponential backoff, in seconds."""

Smaller = Callable[[int], str | None]
"""The flag with which a user would halve micro-batches that many times; None if the run cannot."""


@dataclass(frozen=True)
class Decision:
    """What the launcher does next."""

    exit_code: int = 0
    """The command's exit code; with `restart`, the code if the restart turns out to be impossible."""
    restart: bool = False
    wait: float = 0.0
    """Seconds before the restart."""
    lines: list[str] = field(default_factory=list)
    """Lines for the user."""
    reason: str = ""
    """In one line, why a run ends that failed."""


class RestartPolicy:
    """Restarts after crashes, up to a limit that progress resets; never after a deliberate exit or a stop request.

    A failure anywhere ends all ranks on all machines, so every launcher counts every restart of the job.
    """

    def __init__(self, allowance: int, smaller: Smaller = lambda halvings: None) -> None:
        self._allowance = allowance
        self._smaller = smaller
        self._used = 0
        self._furthest = -1
        self._previous: Exit | None = None
        """The cause of the previous failure."""
        self.halvings = 0
        """How often to halve micro-batches from now on."""

    def decide(
        self, exits: Sequence[Exit], requests: Sequence[int], *, regroups: bool = False, missing: int = 0
    ) -> Decision:
        """Decide after one attempt, from how every rank exited and the signals the launcher received.

        `regroups`: the run spans machines, so ranks that saved and stopped without a request here did so because a
        machine joins or leaves. `missing`: the number of lost machines because of which the launcher ended the ranks.
        """
        if not any(e.code for e in exits):
            return Decision()
        if requests:
            return after_request(exits, requests)
        if regroups and all(e.code in _MAKES_ROOM for e in exits):
            lines = ["machines join or leave: continuing from the checkpoint just saved"]
            return Decision(StoppedOnRequest.exit_code, restart=True, lines=lines)
        found = cause(exits)
        furthest = max(e.reading.step for e in exits)
        # No rank here failed on its own: the launcher ended them because a machine was lost.
        if missing and found.ended_by_launcher:
            return self._try_again(furthest, f"lost {missing} machine(s)", [])
        if found.code in DELIBERATE and not found.follows:
            # Rank 0 has the terminal: if it failed with the same error, it has already printed it.
            printed = exits[0].code == found.code
            return Decision(found.code, lines=[] if printed else report(exits, found))
        # A process killed by the kernel may not be the one that used the memory, so if batches cannot be halved an
        # ordinary restart is still worth a try. An allocation that failed in the rank itself would fail again.
        if found.out_of_memory and (found.code > 0 or self._smaller(self.halvings + 1)):
            return self._need_less_memory(exits, found)
        # The same exception at the same step again is no coincidence: a third attempt would fail as well.
        if found.code > 0 and not found.follows and _alike(found, self._previous):
            self._previous = found
            return _give_up([*report(exits, found), "not restarted: it failed in the same way twice"], found.sentence())
        self._previous = found
        # Every rank here lost a peer, and the peer is on another machine, whose launcher reports the reason.
        if regroups and found.follows:
            return self._try_again(furthest, f"{found.place()}: lost ranks of another machine", [])
        return self._try_again(furthest, found.summary(), found.last_lines(), report(exits, found), found.sentence())

    def out_of_touch(self, furthest: int, endpoint: str) -> Decision:
        """Decide after the rendezvous server stopped answering."""
        return self._try_again(furthest, f"{endpoint} no longer answers", [])

    def _try_again(
        self, furthest: int, what: str, output: list[str], ending: list[str] | None = None, reason: str = ""
    ) -> Decision:
        """Restart if the limit allows it; `ending` is reported instead of `what` if it does not."""
        # Progress since the last failure: a long run may fail any number of times, as long as it advances in between.
        if furthest > self._furthest:
            self._used = 0
        self._furthest = max(self._furthest, furthest)
        if self._used >= self._allowance:
            why = f": {self._used} restart(s) in a row made no progress" if self._used else ""
            return _give_up([*(ending or [what]), f"not restarted{why}"], reason or what)
        self._used += 1
        plan = f"restarting all ranks from the newest checkpoint ({self._used} of {self._allowance})"
        # The first restart is immediate; without progress the next ones wait 1, 2, 4, ... seconds.
        wait = min(2.0 ** (self._used - 2), _LONGEST_WAIT) if self._used > 1 else 0.0
        return Decision(restart=True, wait=wait, lines=[*output, f"{what}; {plan}"])

    def _need_less_memory(self, exits: Sequence[Exit], found: Exit) -> Decision:
        flag = self._smaller(self.halvings + 1)
        if flag is None:
            return _give_up(
                [*report(exits, found), "not restarted: its batches cannot be split further; lower the batch size"],
                found.sentence(),
            )
        # Not counted as a restart: the next attempt differs, and halving ends when batches cannot be split further.
        self.halvings += 1
        last_line = found.output.splitlines()[-1:]
        return Decision(
            restart=True,
            lines=[
                *(f"  {line}" for line in last_line),
                f"{found.summary()}; all ranks continue from the newest checkpoint with micro-batches half as large "
                f"({flag}), equal up to rounding",
            ],
        )


def _give_up(lines: list[str], reason: str) -> Decision:
    return Decision(RunFailed.exit_code, lines=lines, reason=reason)


def _alike(found: Exit, previous: Exit | None) -> bool:
    """Whether two attempts failed with the same exception at the same step."""
    if previous is None or not found.output or not previous.output:
        return False
    same_place = (found.code, found.reading.step) == (previous.code, previous.reading.step)
    return same_place and found.output.splitlines()[-1] == previous.output.splitlines()[-1]


def after_request(exits: Sequence[Exit], requests: Sequence[int]) -> Decision:
    """Decide after the launcher was asked to stop."""
    # If rank 0 exited with 130 it handled the interrupt, and has printed the outcome itself.
    if signal.SIGINT in requests:
        unsaved = "interrupted, not saved: the same command continues from the newest checkpoint"
        return Decision(INTERRUPTED, lines=[] if exits[0].code == INTERRUPTED else [unsaved])
    if len(requests) > 1:
        return Decision(
            128 + requests[0], lines=["killed without saving; the same command continues from the newest checkpoint"]
        )
    # A rank that has not installed its signal handlers yet is killed by the signal itself.
    expected = {0, StoppedOnRequest.exit_code, -signal.SIGTERM, -requests[0]}
    if all(e.code in expected for e in exits):
        return Decision(StoppedOnRequest.exit_code)
    found = cause(exits)
    code = found.code if found.code in DELIBERATE else RunFailed.exit_code
    return Decision(
        code, lines=[*report(exits, found), "not restarted: the run had been asked to stop"], reason=found.sentence()
    )
