"""Memories are filled with numbers that say lane, row and environment, so that a misplaced one shows."""

import pytest
import torch

from lockstep.errors import UserError
from lockstep.rl.replay import Column, Replay

CPU = torch.device("cpu")
ROWS, WIDTH = 5, 2


def name_of(lane, row, env):
    return 1000 * lane + 10 * row + env


def filled(lanes, written, seed=3):
    """A memory of `lanes` after so many rows; each value names its lane, its row and its environment."""
    memory = Replay(lanes, ROWS, WIDTH, {"name": Column((), torch.int64), "pair": Column((2,))}, seed, CPU)
    for row in range(written):
        names = torch.tensor([name_of(lane, row, env) for lane in lanes for env in range(WIDTH)])
        memory.write(torch.tensor([row % ROWS]), name=names, pair=torch.stack((names, -names), 1))
    return memory


def test_rows_go_round_and_the_oldest_make_room():
    memory = filled(range(2, 4), written=7)
    assert memory.filled(3) == 3 and memory.filled(7) == 5
    kept = memory.state(7)["name"]
    assert kept.shape == (2, 5, 2)
    # Rows 5 and 6 lie where 0 and 1 were.
    assert kept[0, :, 1].tolist() == [2051, 2061, 2021, 2031, 2041]
    assert memory.state(7)["pair"][1, 4].tolist() == [[3040, -3040], [3041, -3041]]


def test_a_memory_that_is_not_full_stores_only_what_it_holds():
    assert filled(range(1), written=2).state(2)["name"].tolist() == [[[0, 1], [10, 11]]]


@pytest.mark.parametrize("written", [4, 5, 13])
def test_places_have_the_successors_that_were_asked_for_and_all_are_drawn(written):
    memory = filled(range(2), written)
    places = memory.sample_positions(memory.random_words(torch.arange(20), 16), written, successors=2)
    assert places.shape == (20, 2, 16)
    for lane in range(2):
        names = memory.read("name", places[:, lane].flatten())
        later = memory.read("name", places[:, lane].flatten(), later=2)
        assert torch.equal(later, names + 20)
        first = written - memory.filled(written)
        expected = {name_of(lane, row, env) for row in range(first, written - 2) for env in range(WIDTH)}
        assert set(names.tolist()) == expected


def test_later_rows_are_read_across_the_end_of_the_ring_within_the_lane():
    memory = filled(range(2), written=7)
    row_4_of_lane_1 = torch.tensor([ROWS * WIDTH + 4 * WIDTH + 1])
    assert memory.read("name", row_4_of_lane_1).tolist() == [1041]
    assert memory.read("name", row_4_of_lane_1, later=1).tolist() == [1051]
    assert memory.read("pair", row_4_of_lane_1, later=2).tolist() == [[1061, -1061]]


def test_a_lane_draws_the_same_whichever_lanes_are_computed_together():
    together, alone = filled(range(4), 6), filled(range(2, 3), 6)
    updates = torch.arange(7, 10)
    one = together.sample_positions(together.random_words(updates, 5), 6, 1)[:, 2]
    other = alone.sample_positions(alone.random_words(updates, 5), 6, 1)[:, 0]
    assert torch.equal(together.read("name", one.flatten()), alone.read("name", other.flatten()))


def test_draws_depend_on_seed_lane_and_update_and_on_nothing_else():
    memory, other = filled(range(2), 6), filled(range(2), 6, seed=4)
    words = memory.random_words(torch.arange(3), 8)
    assert torch.equal(words[1:], memory.random_words(torch.arange(1, 3), 8))
    assert torch.equal(words[:, :, :4], memory.random_words(torch.arange(3), 4))
    assert not torch.equal(words[0], words[1])
    assert not torch.equal(words[:, 0], words[:, 1])
    assert not torch.equal(words, other.random_words(torch.arange(3), 8))


def test_draws_are_uniform():
    memory = Replay(range(1), 10, 10, {}, 0, CPU)
    places = memory.sample_positions(memory.random_words(torch.arange(100), 1000), 10, successors=0)
    counts = torch.bincount(places.flatten(), minlength=100)
    # 1000 expected in each of 100 places; chi-square with 99 degrees of freedom is below 160 but once in 10,000.
    assert float(((counts - 1000.0) ** 2 / 1000).sum()) < 160


@pytest.mark.parametrize("written", [3, 7])
def test_lanes_can_be_taken_up_in_another_division(written):
    whole = filled(range(4), written)
    state = whole.state(written)
    half = Replay(range(2, 4), ROWS, WIDTH, {"name": Column((), torch.int64), "pair": Column((2,))}, 3, CPU)
    half.load({name: value[2:4] for name, value in state.items()}, written)
    assert all(torch.equal(value, state[name][2:4]) for name, value in half.state(written).items())


def test_a_ring_that_has_gone_round_keeps_its_length():
    def other(rows):
        return Replay(range(2), rows, WIDTH, {"name": Column((), torch.int64), "pair": Column((2,))}, 3, CPU)

    longer = other(ROWS + 3)
    longer.load(filled(range(2), 4).state(4), 4)
    assert torch.equal(longer.state(4)["name"], filled(range(2), 4).state(4)["name"])
    for rows, written in ((ROWS + 3, 7), (ROWS - 1, 7), (ROWS - 2, 4)):
        with pytest.raises(UserError, match="resume with the buffer_size and steps that the run was started with"):
            other(rows).load(filled(range(2), written).state(written), written)


def test_a_memory_of_other_things_is_not_taken_up():
    wider = Replay(range(2), ROWS, WIDTH, {"name": Column((), torch.int64), "pair": Column((3,))}, 3, CPU)
    with pytest.raises(UserError, match=r"buffer: pair has shape \(2, 4, 2, 2\) in the checkpoint, and \(2, 4, 2, 3\)"):
        wider.load(filled(range(2), 4).state(4), 4)


def test_values_are_kept_in_the_columns_own_format():
    memory = Replay(range(1), 1, 2, {"action": Column((3,), torch.uint8)}, 0, CPU)
    memory.write(torch.tensor([0]), action=torch.tensor([[0, 1, 2], [3, 2, 1]]))
    assert memory.read("action", torch.tensor([1])).tolist() == [[3, 2, 1]]
    assert memory.state(1)["action"].dtype == torch.uint8
