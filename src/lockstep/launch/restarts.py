"""What follows when ranks have ended: success, another attempt, or an exit code; a decision without side effects."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lockstep.errors import NoValidCheckpoint, RunFailed, StoppedOnRequest, UserError
from lockstep.launch.failures import Exit, cause, report

INTERRUPTED = 130
DELIBERATE = frozenset(
    {UserError.exit_code, RunFailed.exit_code, NoValidCheckpoint.exit_code, StoppedOnRequest.exit_code, INTERRUPTED}
)
"""Exit codes by which a rank says that running again would not help or is not wanted."""
_MAKES_ROOM = {0, StoppedOnRequest.exit_code, INTERRUPTED, -getattr(signal, "SIGUSR1", signal.SIGTERM)}
"""How ranks end that were asked to save because machines come or go."""
_LONGEST_WAIT = 60.0

Smaller = Callable[[int], str | None]
"""How the user would ask for micro-batches halved so many times; None where the run cannot do that."""


@dataclass(frozen=True)
class Decision:
    """What the launcher does next."""

    exit_code: int = 0
    """What the command ends with, also where a restart proves impossible."""
    restart: bool = False
    wait: float = 0.0
    """Seconds before the restart."""
    lines: list[str] = field(default_factory=list)
    """What the user is told."""


class RestartPolicy:
    """Restarts after crashes, up to an allowance that progress renews; never after a deliberate end or a request.

    A failure anywhere ends all ranks of all machines, so every launcher counts every restart of the job.
    """

    def __init__(self, allowance: int, smaller: Smaller = lambda halvings: None) -> None:
        self._allowance = allowance
        self._smaller = smaller
        self._used = 0
        self._furthest = -1
        self._previous: Exit | None = None
        self.halvings = 0
        """How often micro-batches are to be halved from now on."""

    def decide(
        self, exits: Sequence[Exit], requests: Sequence[int], *, regroups: bool = False, missing: int = 0
    ) -> Decision:
        """The decision on one attempt, from how every rank ended and the signals that the launcher received.

        `regroups`: the run spans machines, so ranks that stopped without a request here did so because one comes or
        goes. `missing`: machines that were lost, for which the launcher ended the ranks.
        """
        if not any(e.code for e in exits):
            return Decision()
        if requests:
            return after_request(exits, requests)
        if regroups and all(e.code in _MAKES_ROOM for e in exits):
            lines = ["machines come or go: going on from the checkpoint just saved"]
            return Decision(StoppedOnRequest.exit_code, restart=True, lines=lines)
        found = cause(exits)
        furthest = max(e.reading.step for e in exits)
        if missing and found.ended_by_launcher:
            return self._try_again(furthest, f"lost {missing} machine(s)", [])
        if found.code in DELIBERATE and not found.follows:
            # Rank 0 speaks to the terminal itself, so what it ended with has been said.
            said = exits[0].code == found.code
            return Decision(found.code, lines=[] if said else report(exits, found))
        if found.out_of_memory and (found.code > 0 or self._smaller(self.halvings + 1)):
            return self._need_less_memory(exits, found)
        if found.code > 0 and not found.follows and _alike(found, self._previous):
            self._previous = found
            return _give_up([*report(exits, found), "not restarted: it failed in the same way twice"])
        self._previous = found
        if regroups and found.follows:
            return self._try_again(furthest, f"{found.place()}: lost ranks of another machine", [])
        return self._try_again(furthest, found.summary(), found.last_lines(), report(exits, found))

    def out_of_touch(self, furthest: int, endpoint: str) -> Decision:
        """The decision once the place where the machines meet does not answer."""
        return self._try_again(furthest, f"{endpoint} no longer answers", [])

    def _try_again(self, furthest: int, what: str, told: list[str], ending: list[str] | None = None) -> Decision:
        if furthest > self._furthest:
            self._used = 0
        self._furthest = max(self._furthest, furthest)
        if self._used >= self._allowance:
            in_vain = f": {self._used} restart(s) in a row brought no progress" if self._used else ""
            return _give_up([*(ending or [what]), f"not restarted{in_vain}"])
        self._used += 1
        plan = f"restarting all ranks from the newest checkpoint ({self._used} of {self._allowance})"
        # The first restart is immediate; without progress the next ones wait 1, 2, 4 ... seconds.
        wait = min(2.0 ** (self._used - 2), _LONGEST_WAIT) if self._used > 1 else 0.0
        return Decision(restart=True, wait=wait, lines=[*told, f"{what}; {plan}"])

    def _need_less_memory(self, exits: Sequence[Exit], found: Exit) -> Decision:
        flag = self._smaller(self.halvings + 1)
        if flag is None:
            return _give_up(
                [*report(exits, found), "not restarted: its batches cannot be split further; lower the batch size"]
            )
        self.halvings += 1
        words = found.told.splitlines()[-1:]
        return Decision(
            restart=True,
            lines=[
                *(f"  {line}" for line in words),
                f"{found.summary()}; all ranks go on from the newest checkpoint with micro-batches half as large "
                f"({flag}), equal up to rounding",
            ],
        )


def _give_up(lines: list[str]) -> Decision:
    return Decision(RunFailed.exit_code, lines=lines)


def _alike(found: Exit, previous: Exit | None) -> bool:
    """Whether two attempts died of the same exception at the same step."""
    if previous is None or not found.told or not previous.told:
        return False
    same_place = (found.code, found.reading.step) == (previous.code, previous.reading.step)
    return same_place and found.told.splitlines()[-1] == previous.told.splitlines()[-1]


def after_request(exits: Sequence[Exit], requests: Sequence[int]) -> Decision:
    """The decision once the launcher was asked to stop."""
    if signal.SIGINT in requests:
        unsaved = "interrupted, not saved: the same command goes on from the newest checkpoint"
        return Decision(INTERRUPTED, lines=[] if exits[0].code == INTERRUPTED else [unsaved])
    if len(requests) > 1:
        return Decision(128 + requests[0], lines=["ended at once; the next run goes on from the newest checkpoint"])
    # A rank that had not yet installed its handlers dies of the signal itself.
    expected = {0, StoppedOnRequest.exit_code, -signal.SIGTERM, -requests[0]}
    if all(e.code in expected for e in exits):
        return Decision(StoppedOnRequest.exit_code)
    found = cause(exits)
    code = found.code if found.code in DELIBERATE else RunFailed.exit_code
    return Decision(code, lines=[*report(exits, found), "not restarted: the run had been asked to stop"])
