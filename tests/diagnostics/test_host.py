"""Findings about the host."""

from types import SimpleNamespace

import pytest

from lockstep.diagnostics import host


@pytest.mark.parametrize(
    ("text", "quota"),
    [("max 100000\n", None), ("150000 100000\n", 1.5), ("50000 100000", 0.5), (None, None), ("max", None)],
)
def test_a_quota_is_read_in_cores(text, quota):
    assert host.cpu_quota(text) == quota


def test_a_quota_below_the_cores_is_a_warning_with_a_fix(tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    monkeypatch.setattr(host, "_CGROUP", tmp_path)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    finding = host.cores()
    assert finding.verdict == "warn"
    assert "quota of 0.5" in finding.what
    assert "--threads 1" in finding.fix


def test_more_threads_than_cores_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "_CGROUP", tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "4096")
    assert host.cores().verdict == "warn"


def test_a_container_that_is_nearly_full_is_a_warning_though_the_machine_is_not(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text(str(4 * 2**30))
    (tmp_path / "memory.current").write_text(str(3 * 2**30))
    monkeypatch.setattr(host, "_CGROUP", tmp_path)
    monkeypatch.setattr(host.psutil, "virtual_memory", lambda: SimpleNamespace(available=64 * 2**30))
    finding = host.memory()
    assert finding.verdict == "warn"
    assert finding.what.startswith("1.0 GiB")


def test_little_shared_memory_matters_to_several_gpus_only(monkeypatch):
    monkeypatch.setattr(host.shutil, "disk_usage", lambda _: SimpleNamespace(free=2**26, total=2**26))
    assert host.shared_memory(1).verdict == "ok"
    finding = host.shared_memory(2)
    assert finding.verdict == "warn"
    assert "--shm-size" in finding.fix


def test_a_low_limit_on_open_files_is_a_warning_with_the_command(monkeypatch):
    monkeypatch.setattr(host.resource, "getrlimit", lambda _: (256, 4096))
    assert host.open_files().fix == "ulimit -n 4096"
