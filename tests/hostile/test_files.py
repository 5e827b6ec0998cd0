"""Files made to harm: refused in one line by every verb that reads one, with nothing run and nothing written."""

import io
import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
import torch

from lockstep.cli.main import main

READING = [["eval"], ["play"], ["export"], ["verify"], ["resume"]]


class Payload:
    """Runs a command when it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def lying_headers():
    """Safetensors whose header says what is not so, by name."""

    def packed(header, data=b"\0" * 16):
        text = json.dumps(header).encode() if not isinstance(header, bytes) else header
        return struct.pack("<Q", len(text)) + text + data

    one = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    return {
        "beyond the end": packed({"w": {**one, "data_offsets": [0, 2**40]}}),
        "wrong size": packed({"w": {**one, "shape": [2**31, 2**31]}}),
        "negative": packed({"w": {**one, "data_offsets": [-16, 0]}}),
        "overlap": packed({"v": one, "w": one}),
        "hole": packed({"w": {**one, "shape": [1], "data_offsets": [12, 16]}}),
        "unknown type": packed({"w": {**one, "dtype": "object"}}),
        "not json": packed(b"{" * 64),
        "deep": packed(b"[" * 100_000),
        "header of a terabyte": struct.pack("<Q", 2**40) + b"{}",
        "empty": b"",
        "a hundred thousand entries": packed(
            {f"w{i}": {**one, "shape": [0], "data_offsets": [0, 0]} for i in range(100_000)}
        ),
    }


def payloads(canary):
    """Files with a pickled command in every place one could hide, by name."""
    hostile = pickle.dumps(Payload(f"touch {canary}"))
    as_torch = io.BytesIO()
    torch.save(Payload(f"touch {canary}"), as_torch)
    as_numpy = io.BytesIO()
    np.save(as_numpy, np.array([Payload(f"touch {canary}")], dtype=object), allow_pickle=True)
    as_zip = io.BytesIO()
    with zipfile.ZipFile(as_zip, "w") as archive:
        archive.writestr("data", json.dumps({"policy_class": {":serialized:": hostile.hex()}}))
        archive.writestr("policy.pth", as_torch.getvalue())
        archive.writestr("../../canary", b"")
    return {
        "plain.pkl": hostile,
        "model.pt": as_torch.getvalue(),
        "model.pth": as_torch.getvalue(),
        "array.npy": as_numpy.getvalue(),
        "policy.zip": as_zip.getvalue(),
        "renamed.safetensors": hostile,
        "zipped.safetensors": as_zip.getvalue(),
        "config.yaml": hostile,
    }


@pytest.mark.parametrize("verb", READING, ids=lambda words: words[0])
def test_no_file_runs_anything(verb, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    canary = tmp_path / "canary"
    for name, content in payloads(canary).items():
        (tmp_path / name).write_bytes(content)
    before = sorted(tmp_path.rglob("*"))
    for name in payloads(canary):
        assert main([*verb, name]) in (2, 4), name
        assert len(capsys.readouterr().err.splitlines()) == 1, name
    assert sorted(tmp_path.rglob("*")) == before
    pickle.loads((tmp_path / "plain.pkl").read_bytes())
    assert canary.exists(), "the payload itself must work, or this test proves nothing"


def test_no_configuration_runs_anything(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    canary = tmp_path / "canary"
    for name, content in payloads(canary).items():
        (tmp_path / name).write_bytes(content)
        assert main(["plan", "snake", "--config", name]) == 2, name
        assert len(capsys.readouterr().err.splitlines()) == 1, name
    assert not canary.exists()


@pytest.mark.parametrize("lie", lying_headers())
def test_a_header_that_lies_is_refused_before_a_tensor_is_made(lie, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(lying_headers()[lie])
    assert main(["eval", "model.safetensors"]) in (2, 4)
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"{c}: &{c} [*{p},*{p},*{p},*{p},*{p},*{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)),
        "x: " + "[" * 20_000,
        "seed: 1\nseed: 2\n",
        "seed: !!python/name:os.system\n",
        "seed: !!binary aGVsbG8=\n",
        "# " + "x" * 11_000_000,
        "? [a, b]\n: 1\n",
        "seed: 0o17\nn_envs: 1e400\n",
        "- just\n- a list\n",
        "\x00",
    ],
    ids=["bomb", "deep", "twice", "name", "binary", "11 MB", "odd key", "odd numbers", "list", "nul"],
)
def test_a_configuration_that_attacks_is_one_line(text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(text)
    assert main(["plan", "snake", "--config", "config.yaml"]) == 2
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 1
    assert "config.yaml" in shown or "n_envs" in shown


def test_what_is_no_file_is_not_waited_for(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "loop.safetensors").symlink_to(tmp_path / "loop.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    for name in ("pipe.safetensors", "loop.safetensors", "folder.safetensors", "/dev/zero", "/proc/self/mem"):
        assert main(["eval", name]) in (2, 4), name
        assert len(capsys.readouterr().err.splitlines()) == 1, name
