"""State per lane: split on one number of ranks, joined on another."""

import torch

from lockstep.compute.lane_states import cut, joined


def test_lanes_saved_on_some_ranks_load_on_another_number_of_ranks():
    boards, memory = torch.arange(12.0).view(6, 2), torch.arange(9).view(3, 3)
    lanes = cut(range(4, 7), {"env.board": boards}, {"memory.reward": memory})
    assert list(lanes) == [4, 5, 6]
    assert lanes[5]["env.board"].tolist() == [[4.0, 5.0], [6.0, 7.0]]
    assert lanes[5]["memory.reward"].tolist() == [3, 4, 5]
    last = range(5, 7)
    assert joined(last, lanes, "env.")["board"].tolist() == boards[2:].tolist()
    assert joined(last, lanes, "memory.", torch.stack)["reward"].tolist() == memory[1:].tolist()
    assert joined(last, lanes, "plan") == {}
