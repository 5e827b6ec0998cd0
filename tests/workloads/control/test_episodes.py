"""Episodes on disk: what is written is read back, and invalid or mixed files are refused in one line."""

import json
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

from lockstep.errors import UserError
from lockstep.workloads.control import episodes as stored
from lockstep.workloads.control.baselines import no_action, random_action
from lockstep.workloads.control.episodes import Episode, EpisodeFiles, EpisodeWriter
from lockstep.workloads.control.names import TaskFacts
from lockstep.workloads.control.recording import record_episodes
from lockstep.workloads.control.settings import ControlSettings

ONE = TaskFacts(("pendulum-swingup",), (3,), (1,), (500,))
TWO = TaskFacts(("walker-walk", "pendulum-swingup"), (24, 3), (6, 1), (500, 500))


def episode(steps, task=0, first=0.0, obs=3, action=1):
    """Rows with distinct values: observations count from `first`, actions are tenths of it."""
    rows = first + torch.arange(steps + 1.0)
    return Episode(
        observation=rows[:, None].expand(-1, obs).clone(),
        action=(rows[1:, None] / 10).expand(-1, action).clone(),
        reward=rows[1:] / 100,
        terminated=torch.arange(steps) == steps - 1,
        task=task,
    )


def write(folder, tasks, *episodes):
    writer = EpisodeWriter(folder, tasks)
    for one in episodes:
        writer.add(one)
    writer.flush()


def refusal(folder, facts):
    with pytest.raises(UserError) as caught:
        list(EpisodeFiles(folder, facts).episodes([0]))
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def same(one, other):
    parts = ("observation", "action", "reward", "terminated")
    return one.task == other.task and all(torch.equal(getattr(one, p), getattr(other, p)) for p in parts)


def test_written_episodes_can_be_read_in_any_order(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "_ROWS", 8)
    written = [episode(3, first=10), episode(5, first=20), episode(2, first=30)]
    write(tmp_path, ONE.tasks, *written)
    files = EpisodeFiles(tmp_path, ONE)
    assert len(list(tmp_path.iterdir())) == 2
    assert (files.count, files.steps, files.lengths(), [e.task for e in files.episodes(range(files.count))]) == (
        3,
        10,
        [3, 5, 2],
        [0, 0, 0],
    )
    for number, found in zip((2, 0, 1), files.episodes((2, 0, 1)), strict=True):
        assert same(found, written[number])


def test_a_second_recording_keeps_the_files_of_the_first(tmp_path):
    write(tmp_path, ONE.tasks, episode(2, first=1))
    write(tmp_path, ONE.tasks, episode(2, first=5))
    found = list(EpisodeFiles(tmp_path, ONE).episodes(range(2)))
    assert [float(one.observation[0, 0]) for one in found] == [1.0, 5.0]


def test_tasks_are_matched_by_name_and_small_ones_are_padded(tmp_path):
    write(tmp_path, ("pendulum-swingup",), episode(2, first=1))
    write(tmp_path, ("walker-walk",), episode(2, first=5, obs=24, action=6))
    files = EpisodeFiles(tmp_path, TWO)
    assert [e.task for e in files.episodes(range(files.count))] == [1, 0]
    small, large = files.episodes(range(2))
    assert small.observation.shape == large.observation.shape == (3, 24)
    assert small.action.shape == (2, 6)
    assert small.observation[0].tolist() == [1.0] * 3 + [0.0] * 21
    assert small.action[1].tolist() == pytest.approx([0.3] + [0.0] * 5)


def sequences(samples, horizon=2):
    """Tensors to read sequences of both tasks into, with remains of a batch before."""
    shapes = {"observation": (horizon + 1, samples, 24), "action": (horizon, samples, 6)}
    shapes |= {"reward": (horizon, samples), "terminated": (horizon, samples)}
    return {**{name: torch.full(shape, 7.0) for name, shape in shapes.items()}, "task": torch.zeros(samples).long()}


def test_sequences_are_read_from_several_files_and_padded(tmp_path):
    write(tmp_path, ("pendulum-swingup",), episode(2, first=1), episode(3, first=10))
    write(tmp_path, ("walker-walk",), episode(2, first=50, obs=24, action=6))
    into = sequences(3)
    # The walker's episode from its start, the pendulum's second one from step 1, its first from the start.
    EpisodeFiles(tmp_path, TWO).read(torch.tensor([2, 1, 0]), torch.tensor([0, 1, 0]), into)
    assert into["observation"][..., 0].T.tolist() == [[50, 51, 52], [11, 12, 13], [1, 2, 3]]
    assert into["observation"][:, 1, 3:].eq(0).all() and into["observation"][:, 0, 3:].ge(50).all()
    torch.testing.assert_close(into["action"][..., 0].T, torch.tensor([[5.1, 5.2], [1.2, 1.3], [0.2, 0.3]]))
    torch.testing.assert_close(into["reward"].T, torch.tensor([[0.51, 0.52], [0.12, 0.13], [0.02, 0.03]]))
    assert into["terminated"].T.tolist() == [[0, 1], [0, 1], [0, 1]] and into["task"].tolist() == [0, 1, 1]


def test_a_sequence_that_is_not_finite_names_its_file(tmp_path):
    broken = episode(2)
    broken.reward[1] = float("nan")
    write(tmp_path, ("pendulum-swingup",), broken)
    with pytest.raises(UserError, match=r"episodes-00000.safetensors: has values that are not finite; remove"):
        EpisodeFiles(tmp_path, TWO).read(torch.tensor([0]), torch.tensor([0]), sequences(1))


def test_mixed_tasks_are_refused(tmp_path):
    write(tmp_path, ("pendulum-swingup",), episode(2))
    write(tmp_path, ("walker-walk",), episode(2, obs=24, action=6))
    message = refusal(tmp_path, ONE)
    assert "walker-walk" in message and "this run trains on pendulum-swingup" in message


def test_mixed_sizes_are_refused(tmp_path):
    write(tmp_path, ONE.tasks, episode(2))
    write(tmp_path, ONE.tasks, episode(2, obs=5))
    assert "observations of 5 and actions of 1 numbers, not 3 and 1" in refusal(tmp_path, ONE)


def test_a_directory_without_episodes_is_refused(tmp_path):
    assert "lockstep record" in refusal(tmp_path, ONE)
    assert "no episode files" in refusal(tmp_path / "nowhere", ONE)
    (tmp_path / "a.safetensors").write_bytes(b"nonsense")
    assert "damaged" in refusal(tmp_path, ONE)
    safetensors.torch.save_file({"weight": torch.zeros(2)}, tmp_path / "a.safetensors")
    assert "not an episode file" in refusal(tmp_path, ONE)


def test_other_files_do_not_affect_the_number_of_the_next_file(tmp_path):
    write(tmp_path, ONE.tasks, episode(2))
    (tmp_path / "episodes-00000.safetensors").rename(tmp_path / "episodes-1-old.safetensors")
    write(tmp_path, ONE.tasks, episode(2))
    write(tmp_path, ONE.tasks, episode(2))
    written = ["episodes-00000.safetensors", "episodes-00001.safetensors", "episodes-1-old.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == written


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"length": torch.tensor([4])}, "5 rows"),
        ({"length": torch.tensor([50, -48]), "task": torch.tensor([0, 0])}, "an episode has -48 steps"),
        ({"length": torch.tensor([2, 0]), "task": torch.tensor([0, 0])}, "an episode has 0 steps"),
        ({"length": torch.tensor([2**63 - 1] * 2 + [3]), "task": torch.zeros(3, dtype=torch.int64)}, "rows"),
        ({"length": torch.tensor(3)}, "length has the shape []"),
        ({"task": torch.tensor([0, 0])}, "1 episode lengths but 2 task numbers"),
        ({"obs": torch.zeros(4)}, "obs has the shape [4], and must have 2"),
        ({"action": torch.zeros(4, 1, 1)}, "action has the shape [4, 1, 1]"),
        ({"reward": torch.tensor(1.0)}, "reward has the shape []"),
    ],
)
def test_inconsistent_columns_are_refused(tmp_path, changes, problem):
    about = {"format": stored.FORMAT, "tasks": json.dumps(ONE.tasks)}
    safetensors.torch.save_file(stored._concatenated([episode(3)]) | changes, tmp_path / "x.safetensors", about)
    message = refusal(tmp_path, ONE)
    assert "x.safetensors: damaged" in message and problem in message


@pytest.mark.parametrize("tasks", ["5", "{}", "null", "[5]", "[[]]", '"walker-walk"', "not json", "[" * 100_000])
def test_a_header_without_names_of_tasks_is_refused(tmp_path, tasks):
    about = {"format": stored.FORMAT, "tasks": tasks}
    safetensors.torch.save_file(stored._concatenated([episode(3)]), tmp_path / "x.safetensors", about)
    assert "x.safetensors: damaged" in refusal(tmp_path, ONE)


def test_numbers_that_are_not_finite_are_refused(tmp_path):
    poisoned = episode(3)
    poisoned.observation[1, 0] = float("nan")
    write(tmp_path, ONE.tasks, poisoned)
    assert "not finite" in refusal(tmp_path, ONE)


def choice(task, length):
    return ControlSettings(task=task, episode_length=length, env_workers=1)


def test_recorded_episodes_equal_the_played_ones(tmp_path):
    pytest.importorskip("dm_control")
    config = choice("pendulum-swingup", 4)
    assert record_episodes(config, "random", 3, 7, tmp_path) == (3, 12)
    found = list(EpisodeFiles(tmp_path, ONE).episodes(range(3)))
    assert [len(one.action) for one in found] == [4, 4, 4]
    assert len({tuple(one.observation[0].tolist()) for one in found}) == 3
    assert not any(bool(one.terminated.any()) for one in found)
    # Replaying the actions from the first observation gives the other rows.
    import numpy as np

    from lockstep.workloads.control.env import make_env
    from lockstep.workloads.control.suite import SuiteSimulation

    env = make_env(config, torch.arange(1), 7, torch.device("cpu"))
    env.reset()
    simulation = SuiteSimulation("pendulum-swingup")
    simulation.reset(int(env._seeds(env._episode)[0]))
    for row, action, reward in zip(found[0].observation[1:], found[0].action, found[0].reward, strict=True):
        outcome = simulation.step(action.numpy())
        assert np.array_equal(outcome.observation, row.numpy())
        assert float(reward) == pytest.approx(outcome.reward)


def test_recording_several_tasks_keeps_task_numbers_and_zeroes_missing_actions(tmp_path):
    pytest.importorskip("dm_control")
    config = choice("mt30", 2)
    record_episodes(config, "random", 9, 1, tmp_path)
    from lockstep.workloads.control.env import task_facts

    files = EpisodeFiles(tmp_path, task_facts(config))
    assert [e.task for e in files.episodes(range(files.count))] == list(range(9))
    (pendulum,) = files.episodes([7])
    assert (pendulum.action[:, 1:] == 0).all() and (pendulum.action[:, :1] != 0).all()


def test_baselines_act_by_counter_and_within_bounds():
    env = SimpleNamespace(
        seed=3,
        count=2,
        action_dim=4,
        device=torch.device("cpu"),
        index=torch.tensor([5, 6]),
        episode=torch.zeros(2, dtype=torch.int64),
        steps=torch.zeros(2, dtype=torch.int64),
    )
    first = random_action(torch.zeros(2, 1), env)
    assert first.shape == (2, 4) and float(first.abs().max()) <= 1
    assert len(set(first.flatten().tolist())) == 8
    assert torch.equal(first, random_action(torch.zeros(2, 1), env))
    env.steps = env.steps + 1
    assert not torch.equal(first, random_action(torch.zeros(2, 1), env))
    assert torch.equal(no_action(torch.zeros(2, 1), env), torch.zeros(2, 4))
