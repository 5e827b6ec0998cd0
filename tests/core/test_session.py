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


@pytest.mark.parametrize(
    ("sync", "tf32", "products"),
    [("fast", True, "high"), ("fast", False, "highest"), ("exact", True, "highest"), ("exact", False, "highest")],
)
def test_only_fast_rounds_products_to_tf32_and_not_under_proof(monkeypatch, sync, tf32, products):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", not tf32)
    before = torch.get_float32_matmul_precision()
    session.fix_arithmetic(RunConfig(threads=1), World().with_lanes(8, sync), tf32=tf32)
    found = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(before)
    assert found == (products, tf32)
