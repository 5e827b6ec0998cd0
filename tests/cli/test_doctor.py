"""The verb `doctor`, as its users call it."""

import json

from lockstep.cli import doctor
from lockstep.cli.main import main
from lockstep.diagnostics.finding import bad


def test_every_line_has_a_verdict_and_the_ranks_add_up(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("NCCL_TIMEOUT", raising=False)
    assert main(["doctor", "--runs-dir", str(tmp_path), "--ranks", "2", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert {"disk", "versions", "cores", "memory", "ports", "all-reduce"} <= {
        finding["subject"] for finding in findings
    }
    assert all(finding["fix"] for finding in findings if finding["verdict"] != "ok")
    assert "MB/s" in findings[-1]["what"]


def test_what_would_stop_a_run_is_exit_code_three(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuch0")
    assert main(["doctor", "--runs-dir", str(tmp_path), "--ranks", "0"]) == 3
    shown = capsys.readouterr().out
    assert "BAD  GLOO_SOCKET_IFNAME" in shown
    assert "no such interface" in shown


def test_a_line_is_sign_subject_what_and_cure():
    assert doctor.line(bad("disk", "full", "free some space")) == "BAD  disk           full; free some space"


def test_an_unknown_flag_is_one_line(capsys):
    assert main(["doctor", "--rank", "two"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
