"""Models made to harm, given to `--load-model` and `eval`: each is refused in one line, and nothing in it is run."""

import io
import os
import pickle
import zipfile

import pytest
import torch

from lockstep.cli.main import main
from lockstep.errors import UserError
from lockstep.storage import torch_file
from lockstep.workloads import registry


class Harm:
    """Runs a command when it is unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return os.system, (f"touch {self._path}",)


def archive(path, entries, compress=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compress) as file:
        for name, data in entries.items():
            file.writestr(name, data)


def saved(content):
    data = io.BytesIO()
    torch.save(content, data)
    return data.getvalue()


def harmful(path, mark):
    torch.save({"model": Harm(mark), "w": Harm(mark)}, path)


def harmful_bare(path, mark):
    path.write_bytes(pickle.dumps(Harm(mark)))


def bomb(path, mark):
    archive(path, {"archive/data.pkl": bytes(2 << 20), "policy.pth": bytes(2 << 20)}, zipfile.ZIP_DEFLATED)


def long_word(path, mark):
    program = pickle.dumps({})
    archive(path, {"archive/data.pkl": program, "archive/byteorder": bytes(1 << 20)}, zipfile.ZIP_DEFLATED)


def truncated(path, mark):
    data = saved({"w": torch.zeros(1000)})
    path.write_bytes(data[: len(data) // 2])


def nested(path, mark):
    archive(path, {"policy.pth": pickle.dumps(Harm(mark))})


def of_nothing(path, mark):
    archive(path, {"policy.pth": saved([1, 2]), "archive/data.pkl": pickle.dumps("nothing", 2)})


def encrypted(path, mark):
    archive(path, {"policy.pth": b"secret", "archive/data.pkl": b"secret"})
    data = bytearray(path.read_bytes())
    for at in (i for i in range(len(data) - 4) if data[i : i + 4] in (b"PK\x03\x04", b"PK\x01\x02")):
        data[at + (6 if data[at + 2] == 3 else 8)] |= 1
    path.write_bytes(bytes(data))


def pipe(path, mark):
    os.mkfifo(path)


MADE = [harmful, harmful_bare, bomb, long_word, truncated, nested, of_nothing, encrypted, pipe]


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
@pytest.mark.parametrize(
    ("workload", "suffix"), [("snake", ".zip"), ("snake", ".pth"), ("snakes3v3", ".pth"), ("control", ".pt")]
)
def test_a_hostile_model_is_refused_in_one_line(tmp_path, monkeypatch, made, workload, suffix):
    # Lowered, so that the bomb can be a small one.
    for limit in ("_LARGEST_INSIDE", "_LARGEST_PICKLE"):
        monkeypatch.setattr(torch_file, limit, 1 << 20)
    made(path := tmp_path / f"model{suffix}", tmp_path / "harmed")
    chosen = registry.load(workload)
    with pytest.raises(UserError) as refusal:
        chosen.read_foreign(chosen.preset("debug"), path)
    assert "\n" not in str(refusal.value) and str(path) in str(refusal.value)
    assert not (tmp_path / "harmed").exists()


def test_the_command_says_so_in_one_line_and_leaves_no_run(tmp_path, capsys):
    harmful(tmp_path / "model.pth", tmp_path / "harmed")
    place = ["--runs-dir", str(tmp_path / "runs"), "--run-name", "a"]
    assert main(["train", "snake", "--preset", "debug", "--load-model", str(tmp_path / "model.pth"), *place]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "holds no weights" in error
    assert not (tmp_path / "runs" / "a").exists() and not (tmp_path / "harmed").exists()
    assert main(["eval", str(tmp_path / "model.pth"), "--workload", "snake", "--preset", "debug"]) == 2
    assert not (tmp_path / "harmed").exists()
