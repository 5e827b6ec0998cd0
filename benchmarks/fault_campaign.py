"""The fault campaign: plants every fault of the table, counts, and prints the table of docs/guarantees.md.

python benchmarks/fault_campaign.py                      everything (hours on two cores)
python benchmarks/fault_campaign.py --rows 1,2 --kills 5 some rows, fewer kills
python benchmarks/fault_campaign.py --write              also put the table into docs/guarantees.md
python benchmarks/fault_campaign.py --over nccl --write  on a machine with GPUs: the rows that NCCL changes

The kills of one workload alone, so that several can be counted at the same time or on another machine:

python benchmarks/fault_campaign.py kills --workload snake --kills 50 --out snake.json
python benchmarks/fault_campaign.py --rows 1 --kills-from snake.json,trading.json --write
"""

import argparse
import signal
import sys
from pathlib import Path

import fault_places as places
import fault_processes as processes
import fault_rows as rows
import fault_surroundings as surroundings
from fault_kills import kill, summary
from fault_tally import Options, Row, Tally, close_benches, tests

from lockstep.workloads import registry

PAGE = Path(__file__).parent.parent / "docs" / "guarantees.md"
TABLES = {"gloo": "fault table", "nccl": "fault table over NCCL"}
OVER_NCCL = "1,4,6,7,9,22"
"""What a GPU changes about: how ranks are waited for, and how they are ended."""
_STORAGE, _RUN = "tests/storage/", "tests/storage/test_run_directory.py"
_MACHINES = "tests/faults/test_machines.py"
_SETTINGS = (_MACHINES, "tests/test_one_configuration.py", "tests/run/test_consensus.py")
_HOSTILE_RUNS = 6 * (61 + 200)
_EVERY_VERB = "61 made by hand and 200 mutated, for each of 6 verbs that read one (tests/hostile/test_runs.py)"
_ANOTHER_USER = "25 connections to each of its ports, and its files and secrets (tests/hostile/test_sockets.py)"
_STRANGERS = f"pickles, garbage and half-open connections to both of two machines for 8 s ({_MACHINES})"
_BAD_DATA = "header or no_file or archive or (history and (bad or refused or missing or byte or unknown))"
ROWS: dict[int, tuple[str, Row]] = {
    1: ("a rank is killed", processes.kills),
    2: ("a rank is killed while saving", processes.kills_while_saving),
    3: ("the launcher is killed", processes.launcher_killed),
    4: ("a rank is stopped", processes.silent("stop")),
    5: ("a rank holds Python's lock for ever", processes.silent("hold")),
    6: ("an exception on one rank", processes.exceptions),
    7: ("a rank leaves early with code 0", processes.leaves),
    8: ("crash loop", processes.crash_loop),
    9: ("SIGTERM, SIGUSR1", processes.preemptions),
    10: ("Ctrl-C", processes.interrupts),
    11: ("a truncated checkpoint", tests(f"{_STORAGE}test_manifest.py", "-k", "truncations", planted=100)),
    12: ("one bit flipped", tests(f"{_STORAGE}test_manifest.py", "-k", "flipped", planted=500)),
    13: ("a damaged or foreign manifest", tests(f"{_STORAGE}test_manifest.py", "-k", "rejected")),
    14: (
        "disk full",
        tests("tests/faults/test_storage.py", f"{_STORAGE}test_checkpoint.py", "-k", "disk or limit or room"),
    ),
    15: ("run directory cannot be written", tests(_RUN, "-k", "written or full_disk")),
    16: ("all checkpoints are bad", tests(f"{_STORAGE}test_checkpoint.py", "-k", "no_checkpoint_verifies")),
    17: ("two runs, one directory", rows.two_runs),
    18: ("a checkpoint of something else", tests(f"{_STORAGE}test_checkpoint.py", "-k", "something_else or wrapper")),
    19: ("uneven work", tests("tests/distributed/test_collectives.py", "-k", "unequal or uneven", planted=200)),
    20: ("ranks diverge", rows.divergence),
    21: ("NaN on one rank", rows.not_finite),
    22: ("out of memory on one rank", rows.out_of_memory),
    23: ("straggler", rows.stragglers),
    24: ("port taken; two runs at once", rows.pairs),
    25: ("machine lost, added, cut off; bad link", tests(_MACHINES, "-k", "not stranger and not settings")),
    26: ("logger trouble", rows.loggers),
    27: ("pickle payloads", tests("tests/hostile", "-k", "runs_anything", note="tests/hostile")),
    28: ("path tricks", tests(_RUN, "tests/hostile", "-k", "names or attack or linked")),
    29: ("configuration attacks", tests("tests/hostile", "-k", "command_line or configuration", planted=10_000)),
    30: ("bad data files", tests("tests/hostile", "tests/workloads", "-k", _BAD_DATA)),
    31: ("open network services", tests("tests/launch", "-k", "loopback")),
    32: ("killed at the first checkpoint", places.first_checkpoint),
    33: ("killed at best/ or final/", places.best_and_final),
    34: ("killed during a resume", places.resumes),
    35: ("disk full at the first checkpoint, best/, final/, a resume", places.disk("full")),
    36: ("read-only file system at each of these", places.disk("readonly")),
    37: ("the clock set back", surroundings.clock),
    38: ("run directory moved or deleted", surroundings.directory_gone),
    39: ("few file descriptors", surroundings.descriptors),
    40: ("the launcher is stopped", surroundings.launcher_stopped),
    41: ("a starved rank", surroundings.starved),
    42: ("three runs at once", surroundings.three_at_once),
    43: ("200 checkpoints kept", surroundings.many_checkpoints),
    44: ("nobody reads the output", surroundings.reader_gone),
    45: ("hostile run directories", tests("tests/hostile/test_runs.py", planted=_HOSTILE_RUNS, note=_EVERY_VERB)),
    46: ("another user at a live run", tests("tests/hostile/test_sockets.py", planted=25, note=_ANOTHER_USER)),
    47: ("strangers on the network between machines", tests(_MACHINES, "-k", "stranger", note=_STRANGERS)),
    48: ("ranks or machines given different settings", tests(*_SETTINGS, "-k", "given or differ or compared or same")),
}


def table(results: dict[int, Tally]) -> list[str]:
    """The results as lines of Markdown."""
    lines = ["| # | fault | planted | held | |", "|---|---|---|---|---|"]
    for number, tally in results.items():
        lines.append(f"| {number} | {ROWS[number][0]} | {tally.planted:,} | {tally.held:,} | {tally.note} |")
    return lines


def write(lines: list[str], table_name: str) -> None:
    """Put the table into the page, in the place of the old one; rows that were not run stay."""
    begin, end = (f"<!-- {TABLES[table_name]}: {place} -->" for place in ("begin", "end"))
    before, _, rest = PAGE.read_text().partition(begin)
    old, _, after = rest.partition(end)
    found = {line.split("|")[1].strip(): line for line in [*old.strip().splitlines(), *lines] if line.startswith("|")}
    head = [found.pop(name) for name in ("#", "---")]
    body = [found[name] for name in sorted(found, key=int)]
    PAGE.write_text(f"{before}{begin}\n" + "\n".join([*head, *body]) + f"\n{end}{after}")


def kill_one_workload(words: list[str]) -> int:
    """The kills of one workload; 0 where all of them held."""
    parser = argparse.ArgumentParser(prog="fault_campaign.py kills")
    parser.add_argument("--workload", choices=registry.names(), default="snake")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="another one strikes other ranks at other moments")
    parser.add_argument("--out", type=Path, help="a file for the result, to be read by --kills-from")
    given = parser.parse_args(words)
    done = kill(given.workload, given.kills, given.ranks, given.seed)
    if given.out:
        done.write(given.out)
    print(f"{summary([done])}; {done.seconds / done.planted:.1f} s a kill")
    return int(done.held < done.planted)


def main() -> int:
    """Run the rows that are asked for; 0 where all of them held."""
    # A shell that puts this into the background lets it, and all runs that it starts, ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.argv[1:2] == ["kills"]:
        return kill_one_workload(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--over", choices=TABLES, default="gloo", help="which table to write: the ranks choose by device"
    )
    parser.add_argument("--rows", default=None, help="numbers of rows; all of them, or those that a GPU changes")
    parser.add_argument("--kills", type=int, default=50, help="kills for each workload")
    parser.add_argument("--kills-from", default="", help="files that `kills --out` wrote, instead of killing")
    parser.add_argument("--few", type=int, default=5, help="how often the other faults are planted")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--workloads", default=",".join(registry.names()))
    parser.add_argument("--write", action="store_true", help="put the table into docs/guarantees.md")
    given = parser.parse_args()
    counted = [Path(name) for name in given.kills_from.split(",") if name]
    options = Options(given.kills, given.few, given.ranks, given.workloads.split(","), counted)
    results = {}
    numbers = given.rows or (OVER_NCCL if given.over == "nccl" else ",".join(map(str, ROWS)))
    for number in map(int, numbers.split(",")):
        results[number] = ROWS[number][1](options)
        print(table({number: results[number]})[-1], flush=True)
        if given.write:
            write(table(results), given.over)
    close_benches()
    return int(any(tally.held < tally.planted or not tally.planted for tally in results.values()))


if __name__ == "__main__":
    sys.exit(main())
