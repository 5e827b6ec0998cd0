"""Faults aimed at the moments that others rarely hit: the first checkpoint, best/, final/ and a resume."""

from collections.abc import Sequence
from pathlib import Path

from fault_processes import STAGES
from fault_runs import Bench, Ended
from fault_tally import Options, Row, Tally, bench

from lockstep.storage.checkpoint_retention import verify_run

ASKED_TO_STOP = "terminate@rank=0,at=6"
"""Stops a run in its middle, so that there is one to go on with."""
VISITS = (1, 2, 3)
"""Of best/ and final/: before they are written, before they get their names, and after."""
RESUME_VISITS = (1, 2, 3, 4)


def first_checkpoint(_: Options) -> Tally:
    """SIGKILL at every stage of the first checkpoint, on rank 0 and on rank 1."""
    tally, made = Tally(), bench()
    for rank, stage in [*((0, stage) for stage in STAGES if stage != "prune"), (1, "write")]:
        ended, run = made.train(2, f"kill@place={stage},rank={rank},at=1")
        struck = ended.text.count("was killed by SIGKILL") == 1
        tally.count(ended.code == 0 and struck and made.ends_alike(run) and intact(run), ended)
    return tally


def best_and_final(_: Options) -> Tally:
    """SIGKILL to rank 0 before best/ and final/ are written, before they get their names, and after."""
    tally, made = Tally(), bench()
    moments = [(place, visit) for place in ("best", "final") for visit in VISITS]
    faults = "; ".join(f"kill@place={place},rank=0,at={v},attempt={n}" for n, (place, v) in enumerate(moments))
    ended, run = made.train(2, faults, *evaluating(made), "--max-restarts", "20")
    struck = ended.text.count("was killed by SIGKILL")
    good = ended.code == 0 and struck == len(moments) and (run / "best").exists() and intact(run)
    tally.count(good and made.ends_alike(run), ended, len(moments))
    return tally


def resumes(_: Options) -> Tally:
    """SIGKILL while a run is taken up: before and after the checkpoint, after config.yaml, after the cut of the log."""
    tally, made = Tally(), bench()
    for rank in (0, 1):
        run = stopped(made)
        faults = "; ".join(f"kill@place=resume,rank={rank},at={v},attempt={n}" for n, v in enumerate(RESUME_VISITS))
        ended, _ = made.train(2, faults, "--max-restarts", "20", name=run.name)
        struck = ended.text.count("was killed by SIGKILL") == len(RESUME_VISITS)
        tally.count(ended.code == 0 and struck and made.ends_alike(run) and intact(run), ended, len(RESUME_VISITS))
    return tally


def disk(kind: str) -> Row:
    """A disk that refuses once at each of these moments, and one that refuses everything from some write on."""

    def row(options: Options) -> Tally:
        tally, made, told = Tally(), bench(), 0
        once = [(stage, 1) for stage in ("open", "write", "manifest", "publish")]
        once += [(place, visit) for place in ("best", "final") for visit in VISITS[:2]]
        for place, visit in once:
            faults = f"{kind}@place={place},rank=0,at={visit}"
            ended, run = made.train(2, faults, *evaluating(made))
            tally.count(survived(made, ended, run, evaluating(made)), ended)
            told += ended.code != 0
        # A run begins with about ten writes; each checkpoint is a dozen on rank 0, best/ and final/ three each.
        for number in range(2 * options.few):
            faults = f"{kind}@place=disk,rank=0,attempt=0..,at={3 + 9 * (number // 2)}.."
            run = stopped(made) if number % 2 else made.folder / f"{kind}-{number}"
            ended, _ = made.train(2, faults, name=run.name)
            tally.count(survived(made, ended, run), ended)
            told += ended.code != 0
        tally.note = f"{tally.planted - told} cost a warning, {told} ended with one line, and the same command went on"
        return tally

    return row


def evaluating(made: Bench) -> list[str]:
    """The words that let a run keep a best."""
    return ["--eval-every", str(4 * made.stride), "--eval-episodes", "2"]


def stopped(made: Bench) -> Path:
    """A run that was asked to stop in its middle."""
    ended, run = made.train(2, ASKED_TO_STOP)
    assert ended.code == 75, ended.text
    return run


def survived(made: Bench, ended: Ended, run: Path, more: Sequence[str] = ()) -> bool:
    """Whether a run ended in the undisturbed weights, or in one line after which the same command gets there."""
    if "Traceback" in ended.text:
        return False
    if ended.code:
        last = ended.text.splitlines()[-1]
        again, _ = made.train(2, "", *more, name=run.name)
        if ended.code not in (2, 3) or not last.startswith("lockstep: ") or again.code:
            return False
    return made.ends_alike(run) and intact(run)


def intact(run: Path) -> bool:
    """Whether all that a run has stored verifies."""
    return not any(verify_run(run).values())
