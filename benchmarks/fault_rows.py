"""Faults of exchanges, numbers, speed and loggers, one function a row of the table."""

import contextlib
import os
import re
import time
from pathlib import Path

import psutil
from fault_runs import PATIENCE, Going
from fault_tally import Options, Tally, bench, tests

from lockstep.storage.weights import load_weights

PACED = "slow@at=0..,attempt=0..,seconds=0.5"
"""Updates slow enough for something to happen meanwhile."""


def two_runs(options: Options) -> Tally:
    """The same command twice at the same time."""
    tally, made = Tally(), bench()
    for number in range(options.few):
        words = made.words(name := f"twice-{number}", ranks=1 + number % 2)
        started = [Going(words, made.folder / name, PACED) for _ in range(2)]
        for going in started:
            going.process.wait(PATIENCE)
        both = sorted((going.ended() for going in started), key=lambda ended: ended.code)
        refused = re.search(rf"{name}: in use by pid \d+ on .*since", both[1].text) is not None
        codes = [ended.code for ended in both]
        tally.count(codes == [0, 2] and refused and made.ends_alike(made.folder / name), both[1])
    tally.note = "one is refused with the other's process, host and start; the other ends undisturbed"
    return tally


def divergence(options: Options) -> Tally:
    """The weights of each rank in turn are moved; then ranks that call different collectives."""
    tally, made = Tally(), bench()
    for rank in range(options.ranks):
        ended, _ = made.train(options.ranks, f"diverge@rank={rank},at=3", "--check-every", "1")
        # What differs from rank 0 is named; a rank 0 that drifted away shows as all the others.
        strays = ", ".join(str(other) for other in range(1, options.ranks) if rank in (0, other))
        told = f"replicas diverged at step {4 * made.stride:,}: rank(s) {strays} hold other weights" in ended.text
        tally.count(ended.code == 3 and told, ended)
    return tally.add(tests("tests/launch/test_agent.py", "-k", "different_collectives")(options))


def not_finite(options: Options) -> Tally:
    """One gradient of each rank in turn, in both modes; then all of them for ever."""
    tally, made = Tally(), bench()
    for mode in ("exact", "fast"):
        for rank in range(options.ranks):
            ended, run = made.train(options.ranks, f"nan@rank={rank},at=4", "--sync", mode, "--check-every", "1")
            told = "update 5: a gradient was not finite" in ended.text
            tally.count(ended.code == 0 and told and finite(run), ended)
    ended, _ = made.train(2, "nan@rank=1,at=2..,attempt=0..", "--nonfinite-limit", "3")
    tally.count(ended.code == 3 and "3 updates in a row" in ended.text, ended)
    tally.note = "and for every workload in tests/distributed/test_every_workload.py"
    return tally


def finite(run: Path) -> bool:
    """Whether the final weights are."""
    return all(bool(tensor.isfinite().all()) for tensor in load_weights(run / "final")[0].values())


def out_of_memory(options: Options) -> Tally:
    """torch.OutOfMemoryError on each rank in turn."""
    tally, made = Tally(), bench()
    for number in range(options.few):
        rank = number % options.ranks
        ended, _ = made.train(options.ranks, f"memory@rank={rank},at=~2..8,seed={number}")
        told = f"rank {rank} ran out of memory at step" in ended.text and "(--grad-accum 2)" in ended.text
        tally.count(ended.code == 0 and told, ended)
    return tally


def stragglers(options: Options) -> Tally:
    """One rank is stopped for three quarters of the time."""
    tally, made = Tally(), bench()
    for rank in range(2):

        def hold_up(going: Going, rank: int = rank) -> None:
            going.wait_for_points(1)
            slow = going.ranks()[rank]
            with contextlib.suppress(psutil.NoSuchProcess):
                while going.process.poll() is None:
                    slow.suspend()
                    time.sleep(0.15)
                    slow.resume()
                    time.sleep(0.05)

        sizes = ["--max-updates", "60", "--total-timesteps", str(60 * made.stride)]
        ended, _ = made.train(2, "", *sizes, meanwhile=hold_up)
        tally.count(ended.code == 0 and f"rank {rank} slows the others down" in ended.text, ended)
    return tally


def pairs(_: Options) -> Tally:
    """Two runs started at the same moment, twenty times."""
    tally, made = Tally(), bench()
    for number in range(20):
        names = [f"pair-{number}-{side}" for side in "ab"]
        both = [Going(made.words(name, 2, "--max-updates", "2"), made.folder / name) for name in names]
        ended = [going.ended() for going in both]
        tally.count(all(one.code == 0 and not one.left for one in ended), ended[0])
    return tally.add(tests("tests/launch/test_sockets.py", "-k", "taken")(_))


WANDB = """
import time
from pathlib import Path

def init(**options):
    with open(Path(options["dir"], "inits"), "a") as file:
        file.write(options["id"] + "\\n")
    {init}
    return Run()

class Run:
    def log(self, values, step):
        {log}

    def finish(self):
        pass
"""
"""A W&B that does not work."""


def loggers(options: Options) -> Tally:
    """TensorBoard hangs or cannot write; W&B hangs or raises, at once or later."""
    tally, made = Tally(), bench()
    stub = made.folder / "stub"
    stub.mkdir(exist_ok=True)
    hangs, raises = "time.sleep(300)", "raise RuntimeError('no network')"
    for init, log, faults in [
        ("pass", "pass", "slow@place=logger,seconds=300"),
        (hangs, "pass", ""),
        (raises, "pass", ""),
        ("pass", hangs, ""),
        ("pass", raises, ""),
    ]:
        (stub / "wandb.py").write_text(WANDB.format(init=init, log=log))
        path = os.pathsep.join([str(stub), os.environ.get("PYTHONPATH", "")])
        ended, run = made.train(options.ranks, faults, "--wandb", PYTHONPATH=path)
        events = list((run / "tensorboard").glob("events*"))
        once = len(events) == 1 and (run / "inits").read_text().count("\n") == 1
        tally.count(ended.code == 0 and ended.seconds < 120 and once and made.ends_alike(run), ended)
    run = made.folder / "unwritable"
    run.mkdir()
    (run / "tensorboard").write_text("in the way")
    ended, _ = made.train(options.ranks, name=run.name)
    tally.count(ended.code == 0 and made.ends_alike(run), ended)
    return tally.add(tests("tests/reporting/test_metrics.py", "-k", "log or tensorboard or wandb")(options))
