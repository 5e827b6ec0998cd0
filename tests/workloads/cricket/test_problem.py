"""What a network must know of its training matches."""

import torch

from lockstep.workloads.cricket import problem
from lockstep.workloads.cricket.problem import scales_of


def test_scales_are_those_of_the_samples_whatever_the_parts(make_table, monkeypatch):
    table = make_table([30, 41])
    monkeypatch.setattr(problem, "_ROWS", 7)
    scales, rows = scales_of(table), table.state[table.sample]
    torch.testing.assert_close(scales.state_mean, rows.mean(0))
    torch.testing.assert_close(scales.state_deviation, rows.std(0))
    torch.testing.assert_close(scales.career_mean, table.career[table.sample].float().mean(0))
