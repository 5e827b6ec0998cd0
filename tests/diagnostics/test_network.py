"""Findings about ports and variables."""

import socket

from lockstep.diagnostics import network
from lockstep.distributed.nccl import Facts

NONE = Facts()
EIGHT = Facts(gpus=8, nvlink=True, infiniband=("mlx5_0",), interface="eth0", nodes=2, ranks=16)


def judged(environment, facts=NONE, interfaces=("lo", "eth0")):
    return {finding.subject: finding for finding in network.variables(facts, environment, interfaces)}


def test_nccl_timeout_has_no_effect():
    finding = judged({"NCCL_TIMEOUT": "3600"})["NCCL_TIMEOUT"]
    assert finding.verdict == "warn"
    assert "--timeout" in finding.fix


def test_an_unknown_interface_is_bad_and_the_existing_ones_are_listed():
    finding = judged({"NCCL_SOCKET_IFNAME": "ib7"})["NCCL_SOCKET_IFNAME"]
    assert finding.verdict == "bad"
    assert "eth0, lo" in finding.fix


def test_a_prefix_an_exact_name_and_an_exclusion_are_understood():
    for value in ("eth", "=eth0", "^docker", "lo,eth"):
        assert judged({"GLOO_SOCKET_IFNAME": value})["GLOO_SOCKET_IFNAME"].verdict == "ok"


def test_turning_off_an_existing_nvlink_or_infiniband_is_a_warning():
    found = judged({"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}, EIGHT)
    assert found["NCCL_P2P_DISABLE"].verdict == "warn"
    assert found["NCCL_IB_DISABLE"].verdict == "warn"
    assert judged({"NCCL_P2P_DISABLE": "1"}).get("NCCL_P2P_DISABLE") is None


def test_the_debug_level_that_crashes_torch_is_a_warning():
    finding = judged({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})["TORCH_DISTRIBUTED_DEBUG"]
    assert finding.verdict == "warn" and finding.fix.startswith("set INFO")
    assert "TORCH_DISTRIBUTED_DEBUG" not in judged({"TORCH_DISTRIBUTED_DEBUG": "INFO"})


def test_what_a_run_would_set_is_shown_and_the_users_values_are_kept():
    found = judged({"NCCL_DEBUG": "INFO"}, EIGHT)
    assert found["NCCL_P2P_LEVEL"].what.startswith("not set; a run sets NVL")
    assert found["NCCL_DEBUG"].what.startswith("INFO (yours")
    assert found["NCCL_IB_DISABLE"].what.startswith("not set; a run sets 0")
    assert found["NCCL_SOCKET_IFNAME"].what.startswith("not set; a run sets eth0")


def test_loopback_answers_here_and_a_taken_usual_port_is_named(monkeypatch):
    assert network.loopback().verdict == "ok"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(network, "_GUIDES_PORTS", (port,))
        (finding,) = network.usual_ports()
    assert f"port {port} is taken" in finding.what


def test_a_host_name_that_does_not_resolve_is_a_warning(monkeypatch):
    def nothing(*_):
        raise OSError

    monkeypatch.setattr(network.socket, "getaddrinfo", nothing)
    assert network.own_name().verdict == "warn"
