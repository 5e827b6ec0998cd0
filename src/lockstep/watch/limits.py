"""What limits a run, in one sentence, from where its time goes."""

from statistics import median_low

from lockstep.watch.columns import Columns

POINTS = 20
"""Log points that are looked at: the run as it is now, without the noise of a single update."""
_UNEVEN = 1.3
_BUSY = 95.0
_SPLIT, _OWN = "time/split_", "time/own_seconds_rank"
_ADVICE = {
    "environment": "faster environments, or more ranks to share them, would help most",
    "acting": "a smaller network or more environments to each step would help most",
    "learning": "a faster device, a smaller network or more ranks would help most",
    "data": "faster reading of the data would help most",
    "sync": "ranks exchange gradients for that long: larger batches or a faster connection would help most",
}


def limit_of(columns: Columns) -> str:
    """The sentence; empty before the first log point."""
    split = shares(columns)
    if not split:
        return ""
    if slow := _slowest_rank(columns):
        return slow
    part, share = max(split.items(), key=lambda item: item[1])
    if part == "other":
        return (
            f"Evaluating, logging and saving take {share:.0%} of the time: "
            "a larger --eval-every, --log-every or --checkpoint-every would help most."
        )
    advice = _ADVICE.get(part, "that part is where to look first")
    return f"{part.capitalize()} takes {share:.0%} of the time: {advice}.{_full_machine(columns)}"


def shares(columns: Columns, rank: int | None = None) -> dict[str, float]:
    """Each part's share of the wall time, of one rank or averaged over all; `other` is what no part accounts for."""
    ending = "" if rank is None else f"_rank{rank}"
    found: dict[str, float] = {}
    for tag in columns.tags:
        part = tag.removeprefix(_SPLIT).removesuffix(ending)
        if tag == f"{_SPLIT}{part}{ending}" and ("_rank" not in part):
            value = columns.latest(tag, POINTS, absent=0.0)
            found |= {} if value is None else {part: min(max(value, 0.0), 1.0)}
    return found | {"other": max(1.0 - sum(found.values()), 0.0)} if found else {}


def ranks_of(columns: Columns) -> int:
    """How many ranks the newest log points tell of."""
    count = 0
    while columns.latest(f"time/fps_rank{count}", POINTS) is not None:
        count += 1
    return count


def _slowest_rank(columns: Columns) -> str:
    own = [columns.latest(f"{_OWN}{rank}", POINTS) or 0.0 for rank in range(ranks_of(columns))]
    if len(own) < 2 or min(own) <= 0 or max(own) < _UNEVEN * median_low(own) or max(own) < 1e-3:
        return ""
    times = max(own) / median_low(own)
    return (
        f"Rank {own.index(max(own))} slows the others down: its own work takes {times:.1f} times as long as theirs, "
        "and they wait for it at every exchange."
    )


def _full_machine(columns: Columns) -> str:
    busy = columns.latest("system/cpu_percent", POINTS)
    has_gpu = columns.latest("system/gpu0_util_percent", POINTS) is not None
    if busy is None or busy < _BUSY or has_gpu:
        return ""
    return " All cores of the machine were busy: more ranks on it would not help."
