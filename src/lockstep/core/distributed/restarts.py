"""What follows when ranks have ended: success, another attempt, or an exit code; a decision without side effects."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from lockstep.core.distributed.failures import Exit, cause, report
from lockstep.core.errors import NoValidCheckpoint, RunFailed, StoppedOnRequest, UserError

INTERRUPTED = 130
DELIBERATE = frozenset(
    {UserError.exit_code, RunFailed.exit_code, NoValidCheckpoint.exit_code, StoppedOnRequest.exit_code, INTERRUPTED}
)
"""Exit codes by which a rank says that running again would not help or is not wanted."""


@dataclass(frozen=True)
class Decision:
    """What the launcher does next."""

    exit_code: int = 0
    restart: bool = False
    wait: float = 0.0
    """Seconds before the restart."""
    lines: list[str] = field(default_factory=list)
    """What the user is told."""


class RestartPolicy:
    """Restarts after crashes, up to an allowance that progress renews; never after a deliberate end or a request."""

    def __init__(self, allowance: int) -> None:
        self._allowance = allowance
        self._used = 0
        self._furthest = -1
        self._previous: Exit | None = None

    def decide(self, exits: Sequence[Exit], requests: Sequence[int]) -> Decision:
        """The decision on one attempt, from how every rank ended and the signals that the launcher received."""
        if not any(e.code for e in exits):
            return Decision()
        if requests:
            return after_request(exits, requests)
        found = cause(exits)
        if found.code in DELIBERATE and not found.follows:
            # Rank 0 speaks to the terminal itself, so what it ended with has been said.
            said = exits[0].code == found.code
            return Decision(found.code, lines=[] if said else report(exits, found))
        if reason := self._reason_to_give_up(found, max(e.reading.step for e in exits)):
            return Decision(RunFailed.exit_code, lines=[*report(exits, found), reason])
        return self._another_attempt(found)

    def _reason_to_give_up(self, found: Exit, furthest: int) -> str | None:
        if found.code > 0 and not found.follows and _alike(found, self._previous):
            return "not restarted: it failed in the same way twice"
        self._previous = found
        if furthest > self._furthest:
            self._used = 0
        self._furthest = max(self._furthest, furthest)
        if self._used < self._allowance:
            return None
        return f"not restarted: {self._used} restart(s) in a row brought no progress" if self._used else "not restarted"

    def _another_attempt(self, found: Exit) -> Decision:
        self._used += 1
        plan = f"restarting all ranks from the newest checkpoint ({self._used} of {self._allowance})"
        # The first restart is immediate; without progress the next ones wait 1, 2, 4 ... seconds.
        wait = 2.0 ** (self._used - 2) if self._used > 1 else 0.0
        return Decision(restart=True, wait=wait, lines=[*found.last_lines(), f"{found.summary()}; {plan}"])


def _alike(found: Exit, previous: Exit | None) -> bool:
    """Whether two attempts died of the same exception at the same step."""
    if previous is None or not found.told or not previous.told:
        return False
    same_place = (found.code, found.reading.step) == (previous.code, previous.reading.step)
    return same_place and found.told.splitlines()[-1] == previous.told.splitlines()[-1]


def after_request(exits: Sequence[Exit], requests: Sequence[int]) -> Decision:
    """The decision once the launcher was asked to stop."""
    if signal.SIGINT in requests:
        return Decision(INTERRUPTED, lines=[] if exits[0].code == INTERRUPTED else ["interrupted"])
    if len(requests) > 1:
        return Decision(128 + requests[0], lines=["ended at once; the next run goes on from the newest checkpoint"])
    # A rank that had not yet installed its handlers dies of the signal itself.
    expected = {0, StoppedOnRequest.exit_code, -signal.SIGTERM, -requests[0]}
    if all(e.code in expected for e in exits):
        return Decision(StoppedOnRequest.exit_code)
    found = cause(exits)
    code = found.code if found.code in DELIBERATE else RunFailed.exit_code
    return Decision(code, lines=[*report(exits, found), "not restarted: the run had been asked to stop"])
