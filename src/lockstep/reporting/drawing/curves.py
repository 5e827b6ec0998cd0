"""What a curve needs before it is drawn: smoothed, and with as few points as the picture can show."""

import numpy as np


def moving_average(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and its neighbours, `window` in all; at the ends of those that there are."""
    half = min(window, len(values)) // 2
    if half == 0:
        return values
    # Sums from the start and from the end of blocks that are as long as the window, so that each window is the end of
    # one block and the start of the next. Nothing is ever subtracted: after a value of 1e20 a difference of two running
    # sums would be 0 for ever.
    width, count = 2 * half + 1, len(values)
    blocks = np.pad(values, (half, half + -(count + 2 * half) % width)).reshape(-1, width)
    starts = np.cumsum(blocks, axis=1).ravel()
    ends = np.cumsum(blocks[:, ::-1], axis=1)[:, ::-1].ravel()
    places = np.arange(count)
    # A window that is a whole block is not the end of one and the start of another.
    sums = starts[places + width - 1] + np.where(places % width == 0, 0.0, ends[places])
    return sums / (np.minimum(places + half + 1, count) - np.maximum(places - half, 0))


def downsample(x: np.ndarray, y: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """About `points` of the points, such that a line through them looks the same: each bucket's lowest and highest."""
    if len(x) <= points:
        return x, y
    return thin(x, y, (x[-1] - x[0]) / max(points // 2, 1), x[0])


def thin(x: np.ndarray, y: np.ndarray, width: float, origin: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest point of each bucket, and the first and the last of all.

    Buckets are of equal width on the axis, not of equal count: that is what a column of pixels shows.
    """
    if not len(x):
        return x, y
    number = np.floor((x - origin) / width) if width > 0 else np.zeros(len(x))
    is_new = np.diff(number, prepend=number[0] - 1) != 0
    starts, bucket = np.flatnonzero(is_new), np.cumsum(is_new) - 1
    kept = [[0, len(x) - 1]]
    for extreme in (np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)):
        found = np.flatnonzero(y == extreme[bucket])
        # The first of equal ones: a flat curve would keep all of its points.
        kept.append(found[np.diff(bucket[found], prepend=-1) != 0])
    order = np.unique(np.concatenate(kept))
    return x[order], y[order]
