"""Public chunks become episodes, and code in a chunk is never run."""

import io
import pickle
import zipfile
from collections import OrderedDict

import pytest
import torch

pytest.importorskip("dm_control")

from lockstep.errors import UserError
from lockstep.workloads.control import names
from lockstep.workloads.control.convert import convert_chunks, read_chunk
from lockstep.workloads.control.env import task_facts
from lockstep.workloads.control.episodes import EpisodeFiles
from lockstep.workloads.control.names import TaskFacts
from lockstep.workloads.control.settings import ControlSettings

FACTS = TaskFacts(("walker-walk", "pendulum-swingup"), (24, 3), (6, 1), (500, 500))
MT30 = ControlSettings(task="mt30", episode_length=0, env_workers=1)
MT80 = ControlSettings(task="mt80", episode_length=0, env_workers=1)
EPISODES, ROWS = 3, 5


def columns(**changes):
    obs = torch.arange(EPISODES * ROWS * 24.0).view(EPISODES, ROWS, 24)
    action, reward = torch.rand(EPISODES, ROWS, 6), torch.rand(EPISODES, ROWS)
    # The first row of each episode has no action.
    action[:, 0], reward[:, 0] = float("nan"), float("nan")
    task = torch.tensor([1, 0, 1], dtype=torch.int32)[:, None].expand(-1, ROWS).clone()
    return {"obs": obs, "action": action, "reward": reward, "task": task} | changes


class _Call:
    """Pickles as a call of a function that need not exist."""

    def __init__(self, name, *arguments):
        self.name, self.arguments = name, arguments


class _Pickler(pickle._Pickler):
    """Writes calls and tensors like torch.save and TensorDict, without using either."""

    dispatch = pickle._Pickler.dispatch.copy()

    def persistent_id(self, obj):
        return obj.reference if isinstance(obj, _Storage) else None

    def save_call(self, obj):
        self.save_name(obj.name)
        self.save(obj.arguments)
        self.write(pickle.REDUCE)

    def save_name(self, name):
        module, _, attribute = name.rpartition(".")
        self.write(pickle.GLOBAL + module.encode() + b"\n" + attribute.encode() + b"\n")

    dispatch[_Call] = save_call

    def save_object(self, obj):
        self.save_name(obj.name)
        self.write(pickle.EMPTY_TUPLE + pickle.NEWOBJ)
        if obj.items:
            self._batch_setitems(obj.items.items())
        if obj.state is not None:
            self.save(obj.state)
            self.write(pickle.BUILD)


class _Name:
    def __init__(self, name):
        self.name = name


class _Object:
    """Pickles as an object of a class that need not exist, with the items of a dict or with a state."""

    def __init__(self, name, items=None, state=None):
        self.name, self.items, self.state = name, items, state


_Pickler.dispatch[_Object] = _Pickler.save_object
_Pickler.dispatch[_Name] = lambda self, obj: self.save_name(obj.name)


class _Storage:
    def __init__(self, kind, key, count):
        self.reference = ("storage", _Name(f"torch.{kind}"), key, "cpu", count)


def as_new(about):
    """The pickled form of TensorDict 0.11."""
    return _Call("tensordict._reductions._make_td", _Name("tensordict._td.TensorDict"), about)


def as_old(about, inner="tensordict.utils._StringOnlyDict"):
    """The pickled form of TensorDict 0.2 and 0.3, as in the public chunks: a dict subclass of its own."""
    state = about | {"_tensordict": _Object(inner, items=about["_tensordict"])}
    return _Object("tensordict._td.TensorDict", state=state)


def save(path, tensors, pickled=as_new):
    """A file as TensorDict writes it."""
    kinds = {torch.float32: "FloatStorage", torch.int32: "IntStorage", torch.bool: "BoolStorage"}
    inner, data = {}, []
    for key, tensor in tensors.items():
        storage = _Storage(kinds[tensor.dtype], str(len(data)), tensor.numel())
        rest = (0, tuple(tensor.shape), tensor.stride(), False, OrderedDict())
        inner[key] = _Call("torch._utils._rebuild_tensor_v2", storage, *rest)
        data.append(tensor.numpy().tobytes())
    about = {"_tensordict": inner, "_batch_size": _Call("torch.Size", (EPISODES, ROWS))}
    program = io.BytesIO()
    _Pickler(program, 2).dump(pickled(about))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("chunk/data.pkl", program.getvalue())
        archive.writestr("chunk/byteorder", "little")
        for number, numbers in enumerate(data):
            archive.writestr(f"chunk/data/{number}", numbers)
    return path


def refusal(path):
    with pytest.raises(UserError) as caught:
        list(read_chunk(path, FACTS))
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.mark.parametrize("pickled", [as_new, as_old])
def test_a_chunk_becomes_episodes(tmp_path, pickled):
    source = columns()
    save(tmp_path / "chunk.pt", source, pickled)
    assert convert_chunks(MT30, tmp_path, tmp_path / "out") == (EPISODES, 12)
    files = EpisodeFiles(tmp_path / "out", task_facts(MT30))
    assert (files.count, files.steps, [e.task for e in files.episodes(range(files.count))]) == (3, 12, [1, 0, 1])
    for number, episode in enumerate(files.episodes(range(3))):
        assert torch.equal(episode.observation, source["obs"][number])
        assert torch.equal(episode.action, source["action"][number, 1:])
        assert torch.equal(episode.reward, source["reward"][number, 1:])
        assert not bool(episode.terminated.any())


def test_converting_needs_no_simulator(tmp_path, monkeypatch):
    monkeypatch.setattr(names, "find_spec", lambda _: None)
    save(tmp_path / "chunk.pt", columns(obs=torch.zeros(EPISODES, ROWS, 39)))
    assert convert_chunks(MT80, tmp_path, tmp_path / "out") == (EPISODES, 12)


def test_terminations_are_kept_if_a_chunk_has_them(tmp_path):
    ended = torch.zeros(EPISODES, ROWS, dtype=torch.bool)
    ended[1, -1] = True
    found = list(read_chunk(save(tmp_path / "chunk.pt", columns(terminated=ended)), FACTS))
    assert [bool(episode.terminated[-1]) for episode in found] == [False, True, False]


def test_a_plain_dict_of_tensors_is_a_chunk_too(tmp_path):
    torch.save(columns(), tmp_path / "chunk.pt")
    assert len(list(read_chunk(tmp_path / "chunk.pt", FACTS))) == EPISODES


@pytest.mark.parametrize("name", ["os.system", "posix.system", "builtins.eval", "subprocess.Popen"])
def test_a_chunk_that_calls_a_function_is_refused_without_the_call(tmp_path, name):
    trace = tmp_path / "trace"
    program = io.BytesIO()
    _Pickler(program, 2).dump(_Call(name, f"touch {trace}"))
    with zipfile.ZipFile(tmp_path / "chunk.pt", "w") as archive:
        archive.writestr("chunk/data.pkl", program.getvalue())
    assert f"would call {name}" in refusal(tmp_path / "chunk.pt")
    assert not trace.exists()


def test_a_call_hidden_among_the_tensors_is_not_run(tmp_path):
    trace = tmp_path / "trace"
    program = io.BytesIO()
    hidden = {"_tensordict": {"obs": _Call("os.system", f"touch {trace}")}}
    _Pickler(program, 2).dump(as_new(hidden))
    with zipfile.ZipFile(tmp_path / "chunk.pt", "w") as archive:
        archive.writestr("chunk/data.pkl", program.getvalue())
    assert "has no obs" in refusal(tmp_path / "chunk.pt")
    assert not trace.exists()


def test_a_dict_subclass_of_another_package_is_not_a_tensordict(tmp_path):
    path = save(tmp_path / "chunk.pt", columns(), lambda about: as_old(about, "somebody.Dict"))
    assert "it holds no TensorDict" in refusal(path)


def test_sizes_and_tasks_of_another_set_are_refused(tmp_path):
    wide = columns(obs=torch.zeros(EPISODES, ROWS, 39))
    assert "obs has the shape (3, 5, 39), not (3, 5, 24)" in refusal(save(tmp_path / "a.pt", wide))
    mixed = columns()
    mixed["task"][2, 3] = 0
    assert "episode 2 does not belong to exactly one" in refusal(save(tmp_path / "b.pt", mixed))
    assert "episode 0 does not belong to exactly one" in refusal(
        save(tmp_path / "c.pt", columns(task=torch.full((EPISODES, ROWS), 7, dtype=torch.int32)))
    )


def test_files_that_are_not_chunks_are_refused(tmp_path):
    (tmp_path / "text.pt").write_text("not a zip")
    assert "not a chunk of episodes" in refusal(tmp_path / "text.pt")
    assert "not a chunk of episodes" in refusal(tmp_path / "nowhere.pt")
    with pytest.raises(UserError, match="no chunks"):
        convert_chunks(MT30, tmp_path / "empty", tmp_path / "out")
