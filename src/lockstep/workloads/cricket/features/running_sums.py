"""Sums and last occurrences over the earlier rows of a group, leaving out the row itself: what was known before it."""

import numpy as np


class Groups:
    """Rows grouped by a key, in row order within a group; all methods take and return one value per row."""

    def __init__(self, key: np.ndarray) -> None:
        # Sorted by group, so that each group is a contiguous run; stable, so that a run is in row order.
        self._order = np.argsort(key, kind="stable")
        ordered = key[self._order]
        starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1)) if len(key) else np.empty(0, np.int64)
        # For each sorted position: where its group starts.
        self._start = starts[np.searchsorted(starts, np.arange(len(key)), side="right") - 1]

    def before(self, values: np.ndarray) -> np.ndarray:
        """The sum of the values of the earlier rows of the same group."""
        ordered = values[self._order].astype(np.float64 if values.dtype.kind == "f" else np.int64)
        # One running sum over all groups; what it had at the group's start is subtracted.
        total = np.cumsum(ordered) - ordered
        result = np.empty_like(total)
        result[self._order] = total - total[self._start]
        return result

    def since(self, events: np.ndarray) -> np.ndarray:
        """How many rows of the group ago the last event was (1 = the row before); 0 where there was none."""
        place = np.arange(len(events))
        last = np.maximum.accumulate(np.where(events[self._order], place, -1))
        # Shifted by one: a row does not see its own event.
        last = np.concatenate(([-1], last[:-1])) if len(events) else last
        result = np.empty(len(events), np.int64)
        # An event before the group's start belongs to another group.
        result[self._order] = np.where(last >= self._start, place - last, 0)
        return result

    def previous(self, events: np.ndarray) -> np.ndarray:
        """The row of the last event in an earlier row of the group; -1 where there was none."""
        since = self.since(events)[self._order]
        place = np.arange(len(events))
        result = np.empty(len(events), np.int64)
        result[self._order] = np.where(since > 0, self._order[place - since] if len(events) else 0, -1)
        return result

    def lagged(self, values: np.ndarray, lag: int) -> np.ndarray:
        """The value `lag` rows of the group before; 0 where there is none."""
        place = np.arange(len(values)) - lag
        found = np.where(place >= self._start, values[self._order][np.maximum(place, 0)], 0)
        result = np.empty_like(found)
        result[self._order] = found
        return result

    def recent(self, values: np.ndarray, rows: int) -> np.ndarray:
        """The sum of the values of the last `rows` earlier rows of the group."""
        before = self.before(values)[self._order]
        place = np.maximum(np.arange(len(values)) - rows, self._start)
        result = np.empty_like(before)
        result[self._order] = before - before[place]
        return result


def ratio(numerator: np.ndarray, denominator: np.ndarray, otherwise: float = 0.0) -> np.ndarray:
    """The quotient, or a default if the denominator is 0."""
    return np.where(denominator > 0, numerator / np.maximum(denominator, 1e-9), otherwise)
