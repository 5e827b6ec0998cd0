"""States by lanes: cut in one division, put together in another."""

import torch

from lockstep.compute.lane_states import cut, joined


def test_lanes_cut_in_one_division_come_together_in_another():
    boards, memory = torch.arange(12.0).view(6, 2), torch.arange(9).view(3, 3)
    lanes = cut(range(4, 7), {"env.board": boards}, {"memory.reward": memory})
    assert list(lanes) == [4, 5, 6]
    assert lanes[5]["env.board"].tolist() == [[4.0, 5.0], [6.0, 7.0]]
    assert lanes[5]["memory.reward"].tolist() == [3, 4, 5]
    last = range(5, 7)
    assert joined(last, lanes, "env.")["board"].tolist() == boards[2:].tolist()
    assert joined(last, lanes, "memory.", torch.stack)["reward"].tolist() == memory[1:].tolist()
    assert joined(last, lanes, "plan") == {}
