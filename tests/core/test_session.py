"""What a run settles before it computes."""

import pytest
import torch

from lockstep.core import session
from lockstep.core.config.run_config import RunConfig
from lockstep.core.distributed.world import World


@pytest.fixture
def settings():
    """Leave the process as it was."""
    before = torch.get_num_threads(), torch.backends.mkldnn.enabled
    yield
    torch.set_num_threads(before[0])
    torch.backends.mkldnn.enabled = before[1]


@pytest.mark.parametrize(
    ("arm", "precision", "enabled"), [(True, "auto", False), (True, "bf16", True), (False, "auto", True)]
)
def test_small_products_go_past_onednn_on_arm(settings, monkeypatch, arm, precision, enabled):
    monkeypatch.setattr(session, "is_arm", lambda: arm)
    torch.backends.mkldnn.enabled = True
    session.fix_arithmetic(RunConfig(threads=1, precision=precision), World().with_lanes(8, "fast"))
    assert torch.backends.mkldnn.enabled == enabled
