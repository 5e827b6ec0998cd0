import dataclasses
import os
import sys

import pytest
import torch

from lockstep.distributed import nccl
from lockstep.distributed.nccl import Facts, RankFacts
from lockstep.launch import rank_process
from lockstep.launch.failures import nccl_log

EIGHT_GPUS = Facts(gpus=8, nvlink=True, infiniband=("mlx5_0",), interface="eth0", nodes=1, ranks=8)


def seats(*gpus, nccl=(2, 27, 5), may_share=False, device="cuda"):
    return [RankFacts(device, gpu, nccl, may_share) for gpu in gpus]


@pytest.mark.parametrize(
    ("world", "backend", "description"),
    [
        (seats("a", "b"), "nccl", "NCCL 2.27.5 (one GPU each)"),
        (
            seats("a", "a", "b", nccl=(2, 30, 7), may_share=True),
            "nccl",
            "NCCL 2.30.7, 2 ranks sharing a GPU (NCCL_MULTI_RANK_GPU_ENABLE=1)",
        ),
        (
            seats("a", "a", "a", nccl=(2, 30, 7)),
            "gloo",
            "gloo through host memory: 3 ranks share a GPU, and NCCL 2.30.7 can with NCCL_MULTI_RANK_GPU_ENABLE=1",
        ),
        (
            seats("a", "a", may_share=True),
            "gloo",
            "gloo through host memory: 2 ranks share a GPU, and NCCL 2.27.5 cannot; 2.30 with "
            "NCCL_MULTI_RANK_GPU_ENABLE=1 can",
        ),
        (seats("a", "b", nccl=()), "gloo", "gloo through host memory: there is no NCCL here"),
        (seats("", "", device="cpu", nccl=()), "gloo", "gloo: all tensors are in host memory"),
        (seats("", device="mps", nccl=()), "gloo", "gloo: all tensors are in host memory"),
    ],
)
def test_the_backend_follows_from_devices_versions_and_shared_gpus(world, backend, description):
    chosen = nccl.backend_for(world)
    assert (chosen.backend, chosen.description) == (backend, description)
    assert chosen.version == ("" if backend == "gloo" else nccl.spelled(world[0].nccl))


@pytest.mark.parametrize(
    "odd",
    [
        RankFacts("cuda", "a", (2, 30, 7), False),
        RankFacts("cuda", "a", (2, 27, 5), True),
        RankFacts("cpu"),
        RankFacts("cuda", "c", ()),
    ],
)
def test_one_rank_that_cannot_use_nccl_decides_for_all(odd):
    world = seats("a", "b", nccl=(2, 30, 7), may_share=True)
    assert nccl.backend_for(world).backend == "nccl"
    assert nccl.backend_for([*world, odd]).backend == nccl.backend_for([odd, *world]).backend == "gloo"


def test_a_seat_without_a_gpu_needs_no_nccl(monkeypatch):
    monkeypatch.setattr(nccl, "loaded_version", lambda: pytest.fail("nobody needs to know"))
    assert RankFacts.of(torch.device("cpu")) == RankFacts("cpu")


def test_the_version_is_that_of_the_loaded_library(monkeypatch):
    class Library:
        def __init__(self, name, mode):
            self.name = name

        def __getattr__(self, name):
            # As when torch has loaded it privately (RTLD_LOCAL): the process's own symbols do not include it.
            if self.name is None:
                raise AttributeError(name)

            def answer(number):
                number._obj.value = 23007
                return 0

            return answer

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(nccl.dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(nccl.ctypes, "CDLL", Library)
    assert nccl.loaded_version() == (2, 30, 7)


@pytest.mark.parametrize(("platform", "built"), [("win32", True), ("linux", False)])
def test_without_nccl_there_is_no_version(monkeypatch, platform, built):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(nccl.dist, "is_nccl_available", lambda: built)
    assert nccl.loaded_version() == ()


def test_version_numbers_of_nccl_are_decoded():
    assert nccl.version_of(23007) == (2, 30, 7)
    assert nccl.version_of(22705) == (2, 27, 5)
    assert nccl.version_of(2708) == (2, 7, 8)


def carrier_of(world):
    return world.carrier.description


def test_every_rank_knows_the_backend_of_its_world(ranks):
    assert ranks.run(carrier_of) == ["gloo: all tensors are in host memory"] * 4


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


def test_nvlink_is_only_used_where_it_connects_all_gpus():
    assert "NCCL_P2P_LEVEL" not in nccl.recommended(dataclasses.replace(EIGHT_GPUS, nvlink=False))


def test_several_machines_use_infiniband_if_present_and_the_default_route():
    several = dataclasses.replace(EIGHT_GPUS, nodes=2, ranks=16)
    assert nccl.recommended(several)["NCCL_IB_DISABLE"] == "0"
    assert nccl.recommended(several)["NCCL_SOCKET_IFNAME"] == "eth0"
    without = dataclasses.replace(several, infiniband=(), interface=None)
    assert nccl.recommended(without)["NCCL_IB_DISABLE"] == "1"
    assert "NCCL_SOCKET_IFNAME" not in nccl.recommended(without)


def test_deterministic_runs_of_several_ranks_do_not_sum_in_nvswitch():
    deterministic = dataclasses.replace(EIGHT_GPUS, deterministic=True)
    assert nccl.recommended(deterministic)["NCCL_NVLS_ENABLE"] == "0"
    assert "NCCL_NVLS_ENABLE" not in nccl.recommended(EIGHT_GPUS)
    assert "NCCL_NVLS_ENABLE" not in nccl.recommended(dataclasses.replace(deterministic, ranks=1))
    own = {"NCCL_NVLS_ENABLE": "1"}
    assert "kept: NCCL_NVLS_ENABLE=1 (yours)" in nccl.apply(deterministic, own)
    assert own["NCCL_NVLS_ENABLE"] == "1"


def test_nccl_warnings_go_to_the_log_file_unless_the_user_set_nccl_debug():
    facts = dataclasses.replace(EIGHT_GPUS, log_file="/tmp/error-1.nccl")
    assert nccl.recommended(facts)["NCCL_DEBUG_FILE"] == "/tmp/error-1.nccl"
    own = {"NCCL_DEBUG": "INFO"}
    nccl.apply(facts, own)
    assert "NCCL_DEBUG_FILE" not in own


def test_under_our_launcher_the_nccl_log_lies_beside_the_ranks_traceback(monkeypatch, tmp_path):
    monkeypatch.setenv(rank_process.ERROR_FILE_VARIABLE, str(tmp_path / "error-1"))
    monkeypatch.setenv(rank_process.LAUNCHER_VARIABLE, "1")
    place = nccl_log(tmp_path / "error-1")
    place.write_text("of an earlier attempt")
    assert nccl._log_file() == str(place)
    assert not place.exists()


def test_nccl_does_not_write_to_a_log_file_which_it_would_truncate(monkeypatch, tmp_path):
    monkeypatch.delenv(rank_process.LAUNCHER_VARIABLE, raising=False)
    read, write = os.pipe()
    with (tmp_path / "log").open("w") as log, os.fdopen(read), os.fdopen(write, "w") as pipe:
        for stream, place in ((log, ""), (pipe, "/dev/stderr")):
            status = os.fstat(stream.fileno())
            with monkeypatch.context() as patch:
                patch.setattr(nccl.os, "fstat", lambda _, status=status: status)
                assert nccl._log_file() == place


def test_every_setting_has_a_reason_of_one_line():
    facts = dataclasses.replace(EIGHT_GPUS, nodes=2, ranks=16, deterministic=True, log_file="/dev/stderr")
    for setting in nccl.settings(facts):
        assert setting.reason
        assert "\n" not in setting.reason


def test_variables_set_by_the_user_are_kept_and_reported():
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
        "NCCL_P2P_LEVEL=NVL (NVLink connects all GPUs of this machine)",
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
