"""Statistics of the training matches that a network needs."""

import torch

from lockstep.workloads.cricket import problem
from lockstep.workloads.cricket.problem import scales_of


def test_scales_do_not_depend_on_the_parts_they_are_computed_in(make_table, monkeypatch):
    table = make_table([30, 41])
    monkeypatch.setattr(problem, "_ROWS", 7)
    scales, rows = scales_of(table), table.state[table.sample]
    torch.testing.assert_close(scales.state_mean, rows.mean(0))
    torch.testing.assert_close(scales.state_deviation, rows.std(0))
    torch.testing.assert_close(scales.career_mean, table.career[table.sample].float().mean(0))
