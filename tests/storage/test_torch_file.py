"""Files of torch.save are read as data: values are returned, and code is never run."""

import collections
import zipfile

import pytest
import torch
from torch import nn

from lockstep.storage.torch_file import Foreign, read_torch_file


def test_saved_values_are_read_back(tmp_path):
    layer = nn.Linear(3, 2)
    whole = torch.arange(12.0).view(3, 4)
    saved = {
        "model": collections.OrderedDict(layer.state_dict()),
        "parameter": layer.weight,
        "part": whole[1:, ::2],
        "turned": whole.t(),
        "steps": [1, 2.5, "three", None, True, -7, 1 << 40],
        "shape": torch.Size([2, 3]),
        "empty": torch.zeros(0, 4),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "count": torch.tensor(3),
    }
    torch.save(saved, tmp_path / "saved.pt")
    found = read_torch_file(tmp_path / "saved.pt")
    assert list(found) == list(saved)
    torch.testing.assert_close(found.pop("model"), dict(saved.pop("model")), rtol=0, atol=0)
    assert found.pop("steps") == saved.pop("steps") and found.pop("shape") == (2, 3)
    saved.pop("shape")
    for name, value in found.items():
        assert value.dtype == saved[name].dtype and torch.equal(value, saved[name]), name


def test_tensors_that_share_memory_still_do(tmp_path):
    whole = torch.zeros(4)
    torch.save([whole, whole[2:]], tmp_path / "saved.pt")
    one, other = read_torch_file(tmp_path / "saved.pt")
    one[3] = 5.0
    assert other.tolist() == [0.0, 5.0]
    assert read_torch_file(tmp_path / "saved.pt")[0].tolist() == [0.0] * 4


class Booby:
    """Runs a function when it is unpickled by Python."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_code_in_a_file_is_recorded_and_never_run(tmp_path):
    trap = tmp_path / "sprung"
    torch.save({"model": Booby(str(trap))}, tmp_path / "saved.pt")
    found = read_torch_file(tmp_path / "saved.pt")["model"]
    assert isinstance(found, Foreign) and found.name.endswith(".open") and found.arguments == (str(trap), "w")
    assert not trap.exists()


class Pair:
    """A class of another program."""

    def __init__(self):
        self.left, self.right = torch.ones(2), "r"


def test_objects_of_other_programs_show_what_they_are_made_of(tmp_path):
    torch.save(Pair(), tmp_path / "saved.pt")
    found = read_torch_file(tmp_path / "saved.pt")
    assert found.name.endswith(".Pair") and found.state["right"] == "r" and found.state["left"].tolist() == [1.0, 1.0]


def archive(path, program, **entries):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", program)
        for name, body in entries.items():
            file.writestr(f"a/data/{name}", body)
    return path


def storage(key, count):
    """A pickle of a tensor of `count` numbers in a storage, written by hand."""
    reference = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00" + key + b"X\x03\x00\x00\x00cpuK"
    tensor = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + reference + bytes([count]) + b"tQ"
    return tensor + b"K\x00K" + bytes([count]) + b"\x85K\x01\x85\x89Nt\x52."


def test_the_handwritten_tensor_is_read(tmp_path):
    path = archive(tmp_path / "a.pt", storage(b"0", 2), **{"0": torch.tensor([1.0, 2.0]).numpy().tobytes()})
    assert read_torch_file(path).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (storage(b"0", 3), "smaller than its tensors"),
        (storage(b"1", 2), "damaged or of another format"),
        (b"\x80\x02(i__main__\nPair\n.", "INST"),
        (b"\x80\x02N", "exhausted"),
        (b"\x80\x02}K\x01s.", "damaged or of another format"),
    ],
)
def test_a_broken_file_is_refused_with_a_reason(tmp_path, program, reason):
    path = archive(tmp_path / "a.pt", program, **{"0": torch.tensor([1.0, 2.0]).numpy().tobytes()})
    with pytest.raises(ValueError, match=reason):
        read_torch_file(path)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text.pt").write_text("no archive")
    with zipfile.ZipFile(tmp_path / "empty.pt", "w") as file:
        file.writestr("readme", "nothing")
    for name in ("text.pt", "empty.pt"):
        with pytest.raises(ValueError, match=r"not a torch\.save file"):
            read_torch_file(tmp_path / name)
