"""Sums and last occurrences over earlier rows of a group, on numbers worked out by hand."""

import numpy as np
import pytest

from lockstep.workloads.cricket.features.running_sums import Groups, ratio

KEY = np.array([7, 3, 7, 7, 3, 7])


def test_a_sum_counts_the_earlier_rows_of_the_same_group_only():
    values = np.array([1, 10, 2, 4, 20, 8])
    assert Groups(KEY).before(values).tolist() == [0, 0, 1, 3, 10, 7]


def test_a_recent_sum_forgets_what_is_longer_ago():
    values = np.array([1, 10, 2, 4, 20, 8])
    assert Groups(KEY).recent(values, 2).tolist() == [0, 0, 1, 3, 10, 6]
    assert Groups(KEY).recent(values, 1).tolist() == [0, 0, 1, 2, 10, 4]


def test_since_counts_rows_of_the_group_and_is_zero_before_the_first_event():
    events = np.array([True, False, False, False, True, False])
    assert Groups(KEY).since(events).tolist() == [0, 0, 1, 2, 0, 3]


def test_previous_names_the_row_of_the_last_event():
    events = np.array([True, True, False, True, False, True])
    assert Groups(KEY).previous(events).tolist() == [-1, -1, 0, 0, 1, 3]


def test_empty_input_gives_empty_output():
    groups = Groups(np.empty(0, np.int64))
    assert groups.before(np.empty(0, np.int64)).tolist() == []
    assert groups.since(np.empty(0, bool)).tolist() == []
    assert groups.previous(np.empty(0, bool)).tolist() == []


def test_a_ratio_has_a_default_for_a_zero_denominator():
    assert ratio(np.array([1.0, 3.0]), np.array([0, 2]), 5.0).tolist() == [5.0, 1.5]


@pytest.mark.parametrize("seed", range(3))
def test_groups_agree_with_plain_loops(seed):
    random = np.random.default_rng(seed)
    key, values, events = random.integers(4, size=50), random.integers(9, size=50), random.random(50) < 0.3
    groups = Groups(key)
    for row in range(50):
        earlier = [other for other in range(row) if key[other] == key[row]]
        happened = [other for other in earlier if events[other]]
        assert groups.before(values)[row] == sum(values[other] for other in earlier)
        assert groups.recent(values, 5)[row] == sum(values[other] for other in earlier[-5:])
        assert groups.previous(events)[row] == (happened[-1] if happened else -1)
        assert groups.since(events)[row] == (len(earlier) - earlier.index(happened[-1]) if happened else 0)
