"""What the launcher told this process about its place among the ranks. Nothing here needs torch."""

import os

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
STORE_FILE = "LOCKSTEP_STORE"
"""The variable that holds the path of the store in which the ranks of one machine meet."""
MEETING = "LOCKSTEP_MEETING"
"""The variable that says where ranks of several machines meet: address, port and round."""
JOB = "LOCKSTEP_JOB"
ADDRESS = "LOCKSTEP_ADDRESS"
"""The variable that holds this machine's address among several."""


def launched() -> bool:
    """Whether a launcher started this process as one rank of several."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def launched_rank() -> int:
    """This process's rank; 0 without a launcher."""
    return int(os.environ.get("RANK", "0")) if launched() else 0


def launched_size() -> int:
    """The number of ranks that the launcher started; 1 without one."""
    return int(os.environ["WORLD_SIZE"]) if launched() else 1


def local_rank() -> int:
    """This process's number on its machine."""
    return int(os.environ.get("LOCAL_RANK", str(launched_rank())))


def local_size() -> int:
    """The number of ranks on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", str(launched_size())))


def all_on_this_machine() -> bool:
    """Whether every rank of this launch runs on this machine."""
    if "LOCAL_WORLD_SIZE" in os.environ:
        return local_size() == launched_size()
    return launched_size() == 1 or os.environ.get("MASTER_ADDR") in _LOOPBACK_NAMES


def job() -> tuple[str, int] | None:
    """The job that this world belongs to and the number of its meeting, which a later world of it exceeds.

    None where one launcher starts all ranks: there, no earlier world can still be running.
    """
    name, _, epoch = os.environ.get(JOB, "").partition(":")
    return (name, int(epoch)) if name else None


def restart_count() -> int:
    """How often the elastic launcher has started the ranks of this run again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
