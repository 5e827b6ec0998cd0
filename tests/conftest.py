"""What all tests share: one thread, a cache that is theirs, and ranks that are started once."""

import os
import signal
from collections.abc import Iterator

import pytest
import torch

from lockstep.core.distributed.pool import RankPool

torch.set_num_threads(1)
# A shell that puts tests into the background lets them, and all that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What workloads keep for the user goes to a folder of this session, in the processes that it starts too."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def ranks(cache: None) -> Iterator[RankPool]:
    """Four live ranks on gloo: `ranks.run(function, *args, ranks=2)` runs a test file's function on the first two."""
    with RankPool(4) as pool:
        yield pool
