"""The hash of the weights in the log: how often it is taken, and that runs share points."""

from lockstep.reporting.fingerprints import Fingerprints


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def spend(self, seconds):
        self.now += seconds
        return "a hash"


def hashed(cost, seconds, updates=64):
    """The updates whose weights are hashed, if hashing costs `cost` and an update takes `seconds`."""
    clock = Clock()
    fingerprints = Fingerprints(lambda: clock.spend(cost), clock)
    found = []
    for update in range(1, updates + 1):
        clock.spend(seconds)
        found += [update] if fingerprints.for_log(update) else []
    return found


def test_a_cheap_hash_is_taken_at_every_log_point():
    # Half a percent of 1 s is 5 ms.
    assert hashed(cost=0.004, seconds=1.0) == list(range(1, 65))


def test_a_dear_hash_is_taken_as_rarely_as_half_a_percent_needs():
    # 40 ms are half a percent of 8 s. The first one has to be taken to know what it costs.
    assert hashed(cost=0.040, seconds=1.0) == [1, 8, 16, 24, 32, 40, 48, 56, 64]


def test_runs_of_different_speed_hash_the_same_updates_where_the_slower_does():
    slow, fast = hashed(cost=0.040, seconds=1.0), hashed(cost=0.040, seconds=0.5)
    assert set(fast) < set(slow)


def test_a_hash_that_was_taken_to_compare_ranks_is_not_taken_again():
    taken = []
    fingerprints = Fingerprints(lambda: taken.append("now") or f"hash {len(taken)}")
    assert fingerprints.take(50) == "hash 1"
    assert fingerprints.for_log(50) == "hash 1" and len(taken) == 1
    assert fingerprints.take(50) == "hash 2", "a comparison of ranks always looks at the weights themselves"
