"""What a run settles before it computes."""

import pytest
import torch

from lockstep.core import session
from lockstep.core.config.run_config import RunConfig
from lockstep.core.distributed.world import World


@pytest.mark.parametrize(
    ("arm", "precision", "enabled"), [(True, "auto", False), (True, "bf16", True), (False, "auto", True)]
)
def test_small_products_go_past_onednn_on_arm(monkeypatch, arm, precision, enabled):
    monkeypatch.setattr(session, "is_arm", lambda: arm)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)
    session.fix_arithmetic(RunConfig(threads=1, precision=precision), World().with_lanes(8, "fast"))
    assert torch.backends.mkldnn.enabled == enabled
