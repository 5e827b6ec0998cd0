import dataclasses
import sys

import pytest
import torch

from lockstep.core.distributed import nccl
from lockstep.core.distributed.nccl import Facts

EIGHT_GPUS = Facts(gpus=8, nvlink=True, infiniband=("mlx5_0",), interface="eth0", nodes=1, ranks=8)


@pytest.fixture
def gpus(monkeypatch):
    def pretend(count, ranks_here, platform="linux"):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks_here))

    return pretend


@pytest.mark.parametrize(
    ("platform", "device", "count", "ranks_here", "backend"),
    [
        ("linux", "cuda", 4, 4, "nccl"),
        ("linux", "cuda", 8, 2, "nccl"),
        ("linux", "cuda", 1, 2, "gloo"),
        ("linux", "cpu", 4, 4, "gloo"),
        ("win32", "cuda", 4, 4, "gloo"),
        ("darwin", "mps", 0, 1, "gloo"),
        ("darwin", "cpu", 0, 4, "gloo"),
    ],
)
def test_the_backend_follows_platform_device_and_ranks_for_each_gpu(gpus, platform, device, count, ranks_here, backend):
    gpus(count, ranks_here, platform)
    assert nccl.backend_for(torch.device(device)) == backend


def test_nothing_is_set_on_a_machine_without_a_gpu():
    assert nccl.recommended(Facts()) == {}
    assert nccl.apply(Facts(), {}) == []
    if not torch.cuda.is_available():
        assert nccl.detect() == Facts()


def test_one_rank_needs_no_nccl():
    assert nccl.recommended(Facts(gpus=1, ranks=1)) == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def test_one_machine_with_nvlink_stays_on_loopback():
    assert nccl.recommended(EIGHT_GPUS) == {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "NCCL_DEBUG": "WARN",
        "NCCL_P2P_LEVEL": "NVL",
        "NCCL_SOCKET_IFNAME": "lo",
    }


def test_nvlink_is_only_asked_for_where_it_is():
    assert "NCCL_P2P_LEVEL" not in nccl.recommended(dataclasses.replace(EIGHT_GPUS, nvlink=False))


def test_several_machines_use_infiniband_where_it_is_and_the_default_route():
    several = dataclasses.replace(EIGHT_GPUS, nodes=2, ranks=16)
    assert nccl.recommended(several)["NCCL_IB_DISABLE"] == "0"
    assert nccl.recommended(several)["NCCL_SOCKET_IFNAME"] == "eth0"
    without = dataclasses.replace(several, infiniband=(), interface=None)
    assert nccl.recommended(without)["NCCL_IB_DISABLE"] == "1"
    assert "NCCL_SOCKET_IFNAME" not in nccl.recommended(without)


def test_every_setting_has_a_reason_of_one_line():
    for setting in nccl.settings(dataclasses.replace(EIGHT_GPUS, nodes=2, ranks=16)):
        assert setting.reason
        assert "\n" not in setting.reason


def test_what_the_user_has_set_is_kept_and_said():
    environment = {"NCCL_DEBUG": "INFO", "PYTORCH_ALLOC_CONF": "backend:native"}
    lines = nccl.apply(EIGHT_GPUS, environment)
    assert environment == {
        "NCCL_DEBUG": "INFO",
        "PYTORCH_ALLOC_CONF": "backend:native",
        "NCCL_P2P_LEVEL": "NVL",
        "NCCL_SOCKET_IFNAME": "lo",
    }
    assert lines[:3] == [
        "kept: PYTORCH_ALLOC_CONF=backend:native (yours)",
        "kept: NCCL_DEBUG=INFO (yours)",
        "NCCL_P2P_LEVEL=NVL (NVLink joins all GPUs of this machine)",
    ]


def test_the_default_route_with_the_smallest_metric_names_the_interface():
    routes = [
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT",
        "wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0",
        "eth1\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0",
        "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0",
    ]
    assert nccl.default_interface(routes) == "eth1"
    assert nccl.default_interface(routes[:1]) is None
