"""What all tests share: one thread, and ranks that are started once."""

from collections.abc import Iterator

import pytest
import torch

from lockstep.core.distributed.pool import RankPool

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankPool]:
    """Four live ranks on gloo: `ranks.run(function, *args, ranks=2)` runs a test file's function on the first two."""
    with RankPool(4) as pool:
        yield pool
