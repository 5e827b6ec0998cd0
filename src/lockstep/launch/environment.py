"""What the launcher set in this rank's environment: rank, world size and where to rendezvous. Needs no torch."""

import os

# torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE) are used as they are, so a rank need not know
# which launcher started it. Lockstep's own launcher adds the variables below.
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
STORE_FILE = "LOCKSTEP_STORE"
"""The variable that holds the path of the FileStore through which the ranks of one machine find each other."""
RENDEZVOUS = "LOCKSTEP_MEETING"
"""The variable that holds the rendezvous of several machines: address, port and round."""
JOB = "LOCKSTEP_JOB"
"""The variable that holds NAME:ROUND of a job on several machines."""
ADDRESS = "LOCKSTEP_ADDRESS"
"""The variable that holds the address at which the other machines reach this one."""


def launched() -> bool:
    """Whether a launcher started this process as one rank of several."""
    # Both: a rank without a world size, left over from somewhere, is not a launch.
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def launched_rank() -> int:
    """This process's rank; 0 without a launcher."""
    return int(os.environ.get("RANK", "0")) if launched() else 0


def launched_size() -> int:
    """The number of ranks that the launcher started; 1 without one."""
    return int(os.environ["WORLD_SIZE"]) if launched() else 1


def local_rank() -> int:
    """This process's number among the ranks of its machine."""
    # Without the variable there is one machine, as far as anybody can tell: both numbers are the same.
    return int(os.environ.get("LOCAL_RANK", str(launched_rank())))


def local_size() -> int:
    """The number of ranks on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", str(launched_size())))


def all_on_this_machine() -> bool:
    """Whether every rank of this launch runs on this machine."""
    if "LOCAL_WORLD_SIZE" in os.environ:
        return local_size() == launched_size()
    # Launchers other than torchrun may set no LOCAL_WORLD_SIZE; a loopback address cannot lead to another machine.
    return launched_size() == 1 or os.environ.get("MASTER_ADDR") in _LOOPBACK_NAMES


def job() -> tuple[str, int] | None:
    """The job this world belongs to and its round number; a later world of the same job has a higher one.

    None if one launcher starts all ranks: then no earlier world can still be running.
    """
    name, _, epoch = os.environ.get(JOB, "").partition(":")
    return (name, int(epoch)) if name else None


def restart_count() -> int:
    """How often the launcher has restarted the ranks of this run."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
