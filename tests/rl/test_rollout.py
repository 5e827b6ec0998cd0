"""Rollouts are filled with numbers that say where they belong, so that a misplaced one shows."""

import torch

from lockstep.rl.rollout import EpisodeLedger, Rollout

CPU = torch.device("cpu")


def test_rows_land_where_the_index_points_and_flatten_time_first():
    rollout = Rollout(3, 2, torch.zeros(2, 1, dtype=torch.uint8), torch.zeros(3, 2, dtype=torch.int64))
    time = torch.zeros(1, dtype=torch.int64)
    for t in range(3):
        rollout.write(
            time,
            observation=torch.tensor([[10 * t], [10 * t + 1]], dtype=torch.uint8),
            action=torch.tensor([10 * t, 10 * t + 1]),
        )
        time += 1
    flat = rollout.flat()
    assert flat["observation"].flatten().tolist() == [0, 1, 10, 11, 20, 21]
    assert flat["action"].tolist() == [0, 1, 10, 11, 20, 21]


def test_flat_columns_are_views_of_the_storage():
    rollout = Rollout(2, 2, torch.zeros(2, 1), torch.zeros(2, 2, dtype=torch.int64))
    flat = rollout.flat()
    rollout.advantage[1, 0] = 7.0
    assert flat["advantage"].tolist() == [0, 0, 7, 0]


def test_episodes_are_cut_at_their_ends_and_carried_over_roll_outs():
    ledger = EpisodeLedger(2, CPU)
    reward = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0]])
    ended = torch.tensor([[False, False], [True, False], [True, False], [False, False]])
    size = torch.arange(8).view(4, 2)
    first = ledger.close(reward, ended, {"size": size})
    # Environment 0 ends after steps 2 and 3; environment 1 does not end.
    assert first.returns.tolist() == [3.0, 4.0]
    assert first.lengths.tolist() == [2, 1]
    assert first.info["size"].tolist() == [2, 4]
    assert ledger.open_return.tolist() == [8.0, 150.0]
    assert ledger.open_length.tolist() == [1, 4]
    second = ledger.close(torch.ones(1, 2), torch.tensor([[True, True]]), {"size": torch.tensor([[5, 6]])})
    assert second.returns.tolist() == [9.0, 151.0]
    assert second.lengths.tolist() == [2, 5]
    assert ledger.open_return.tolist() == [0.0, 0.0]


def test_a_roll_out_without_an_end_reports_nothing_and_keeps_everything():
    ledger = EpisodeLedger(1, CPU)
    episodes = ledger.close(torch.ones(5, 1), torch.zeros(5, 1, dtype=torch.bool), {})
    assert len(episodes.returns) == 0
    assert (ledger.open_return.item(), ledger.open_length.item()) == (5.0, 5)
