"""Every stored number says which lane, environment, episode and step it is of, so that a misplaced one shows."""

import pytest
import torch

from lockstep.rl.replay import Column
from lockstep.rl.sequence_replay import SequenceReplay

CPU = torch.device("cpu")
COLUMNS = {"name": Column((), torch.int64), "pair": Column((2,))}
WIDTH, LENGTH = 2, 3


def episode_length(env, episode):
    """Episodes of 2 to 7 steps: some are too short for a sequence."""
    return 2 + (3 * env + 5 * episode) % 6


class Filled:
    """A memory of some lanes after a number of rows; a value is 10000 x environment + 100 x episode + step."""

    def __init__(self, lanes, rows, written, seed=3):
        self.memory = SequenceReplay(lanes, rows, WIDTH, COLUMNS, seed, CPU, LENGTH)
        self.envs = [lane * WIDTH + env for lane in lanes for env in range(WIDTH)]
        self.episode, self.step = dict.fromkeys(self.envs, 0), dict.fromkeys(self.envs, 0)
        self.rows, self.written = [], 0
        self.write(written)

    def write(self, count):
        for _ in range(count):
            names = torch.tensor([10000 * env + 100 * self.episode[env] + self.step[env] for env in self.envs])
            ended = torch.tensor([self.step[e] + 1 == episode_length(e, self.episode[e]) for e in self.envs])
            self.memory.append(self.written, ended, name=names, pair=torch.stack((names, -names), 1))
            self.rows.append(names.tolist())
            self.written += 1
            for env, end in zip(self.envs, ended.tolist(), strict=True):
                self.step[env] = 0 if end else self.step[env] + 1
                self.episode[env] += end

    def whole_sequences(self):
        """The first names of all sequences of LENGTH steps that the memory still holds, by reasoning."""
        kept = self.rows[-self.memory.rows :]
        starts = set()
        for number in range(len(kept) - LENGTH + 1):
            for column in range(len(self.envs)):
                names = [kept[number + later][column] for later in range(LENGTH)]
                if [name - names[0] for name in names] == list(range(LENGTH)):
                    starts.add(names[0])
        return starts


@pytest.mark.parametrize(("rows", "written"), [(40, 25), (16, 16), (16, 50), (6, 33)])
def test_all_sequences_inside_episodes_are_drawn_and_no_others(rows, written):
    filled = Filled(range(2, 4), rows, written)
    drawn = set()
    for update in range(60):
        place = filled.memory.draw_sequences(torch.tensor(update), 16)
        names = filled.memory.read("name", place)
        assert names.shape == (LENGTH, 32)
        assert torch.equal(names - names[0], torch.arange(LENGTH)[:, None].expand_as(names))
        # The first half of the places is of the first lane.
        assert ((names[0, :16] // 10000) // WIDTH == 2).all() and ((names[0, 16:] // 10000) // WIDTH == 3).all()
        drawn |= set(names[0].tolist())
    assert drawn == filled.whole_sequences()


def test_sequences_are_drawn_equally_often():
    filled = Filled(range(1), 40, 200)
    starts = sorted(filled.whole_sequences())
    places = torch.cat([filled.memory.draw_sequences(torch.tensor(update), 1000) for update in range(30)], 1)
    names = filled.memory.read("name", places)[0]
    counts = torch.tensor([int((names == start).sum()) for start in starts])
    expected = 30_000 / len(starts)
    # Chi-square, with about 40 degrees of freedom, is below 90 but once in 100,000.
    assert len(starts) < 50 and float(((counts - expected) ** 2 / expected).sum()) < 90


def test_all_columns_go_along():
    filled = Filled(range(2), 16, 30)
    place = filled.memory.draw_sequences(torch.tensor(1), 8)
    names, pairs = (filled.memory.read(name, place) for name in ("name", "pair"))
    assert torch.equal(pairs, torch.stack((names, -names), -1).float())


def test_a_lane_draws_the_same_whichever_lanes_are_computed_together():
    together, alone = Filled(range(4), 16, 30), Filled(range(2, 3), 16, 30)
    one = together.memory.read("name", together.memory.draw_sequences(torch.tensor(5), 6))
    other = alone.memory.read("name", alone.memory.draw_sequences(torch.tensor(5), 6))
    assert torch.equal(one[:, 12:18], other)


def test_where_no_candidate_is_whole_a_sequence_that_is_known_is_taken():
    filled = Filled(range(1), 600, 0)
    memory = filled.memory
    for number in range(300):
        # One long episode at the start, then episodes of a single step.
        ended = torch.full((WIDTH,), number >= LENGTH)
        memory.append(number, ended, name=torch.full((WIDTH,), number), pair=torch.zeros(WIDTH, 2))
    names = memory.read("name", memory.draw_sequences(torch.tensor(0), 200))
    # Rows 0 to 3 are one episode: sequences begin in rows 0 and 1, and the first that was whole begins in row 0.
    assert set(names[0].tolist()) <= {0, 1} and int((names[0] == 0).sum()) > 150


def test_the_known_sequence_is_renewed_before_it_is_overwritten():
    memory = SequenceReplay(range(1), 8, 1, {"name": Column((), torch.int64)}, 0, CPU, LENGTH)
    for number in range(50):
        # Always three steps and then a single one: of eight rows at least one holds a whole sequence's beginning.
        memory.append(number, torch.tensor([number % 4 >= 2]), name=torch.tensor([number]))
        if number >= LENGTH:
            start = int(memory.read("name", memory._last_resort))
            assert start % 4 == 0 and number - start < 8


def test_lanes_without_a_sequence_are_counted():
    memory = SequenceReplay(range(2), 8, 1, {}, 0, CPU, LENGTH)
    for number, ended in enumerate([[False, False], [False, True], [False, False]]):
        assert memory.lanes_without_sequence() == 2
        memory.append(number, torch.tensor(ended))
    assert memory.lanes_without_sequence() == 1


@pytest.mark.parametrize("written", [9, 41])
def test_lanes_can_be_taken_up_in_another_division_and_go_on(written):
    whole = Filled(range(4), 16, written)
    state = {name: value.clone() for name, value in whole.memory.state(written).items()}
    half = Filled(range(2, 4), 16, 0)
    half.memory.load({name: value[2:4] for name, value in state.items()}, written)
    half.memory.resume(written)
    half.written = written
    for kept, source in ((half.episode, whole.episode), (half.step, whole.step)):
        kept.update({env: source[env] for env in half.envs})
    for _ in range(3):
        place = whole.memory.draw_sequences(torch.tensor(7), 6)
        other = half.memory.draw_sequences(torch.tensor(7), 6)
        expected = whole.memory.read("pair", place)[:, 12:]
        assert torch.equal(half.memory.read("pair", other), expected)
        whole.write(4)
        half.write(4)


def test_a_memory_can_be_filled_with_whole_episodes_of_different_lanes():
    memory = SequenceReplay(range(3, 5), 12, 1, {"name": Column((), torch.int64)}, 0, CPU, LENGTH)
    memory.keep(3, 0, name=torch.arange(100, 102))
    memory.keep(3, 2, name=torch.arange(200, 205))
    assert memory.lanes_without_sequence() == 1
    memory.keep(4, 0, name=torch.arange(300, 304))
    names = memory.read("name", memory.draw_sequences(torch.tensor(2), 50))
    assert set(names[0, :50].tolist()) == {200, 201, 202} and set(names[0, 50:].tolist()) == {300, 301}
    assert torch.equal(names - names[0], torch.arange(LENGTH)[:, None].expand_as(names))
