"""Whether runs of one experiment hold the same bits, in numbers that can be checked by hand."""

from lockstep.watch.agreement import AgreementFollower, Member, ranks_in_words


def compare(members, sync):
    return AgreementFollower().look(members, sync)


def test_runs_with_equal_hashes_agree_up_to_the_last_step_that_all_have():
    one = Member("one", 1, {10: "aa", 20: "bb", 30: "cc", 40: "dd"})
    two = Member("two", 2, {10: "aa", 20: "bb", 30: "cc"})
    four = Member("four", 4, {10: "aa", 30: "cc"})
    found = compare([one, two, four], "exact")
    assert found.sentence == "Same bits on 1, 2 and 4 ranks up to step 30"
    assert (found.compared, found.agreed_to, found.parts_at) == (2, 30, None)
    assert [row["step"] for row in found.rows] == [10, 30] and all(row["same"] for row in found.rows)


def test_the_step_at_which_runs_part_is_named():
    one = Member("one", 1, {step: f"{step}" for step in range(100)})
    two = Member("two", 2, {step: f"{step}" if step < 42 else "other" for step in range(100)})
    found = compare([one, two], "exact")
    assert (found.agreed_to, found.parts_at) == (41, 42)
    assert found.sentence == "Same bits up to step 41, different bits on 1 and 2 ranks from step 42"
    assert [(row["step"], row["same"]) for row in found.rows] == [(s, s < 42) for s in range(38, 46)]


def test_fast_mode_is_not_blamed_for_what_it_does_not_promise():
    found = compare([Member("a", 1, {5: "x"}), Member("b", 2, {5: "y"})], "fast")
    assert (
        found.sentence
        == "Different bits on 1 and 2 ranks from step 5; --sync fast promises equality up to rounding only"
    )


def test_runs_without_a_common_step_say_so():
    found = compare([Member("a", 1, {5: "x"}), Member("b", 2, {6: "y"})], "exact")
    assert found.sentence == "No step in common yet on 1 and 2 ranks" and found.rows == []


def test_repeated_runs_are_counted():
    assert ranks_in_words([2, 2, 2]) == "3 runs of 2 ranks" and ranks_in_words([1, 1]) == "2 runs of 1 rank"


def test_as_runs_grow_only_new_steps_are_compared_and_the_answer_is_as_if_all_were():
    one = Member("one", 1, {step: f"{step}" for step in range(100)})
    two = Member("two", 2, {})
    follower = AgreementFollower()
    for step in range(0, 100, 3):
        two.hashes[step] = f"{step}" if step < 42 else "other"
        assert follower.look([one, two], "exact") == compare([one, two], "exact")
    # What was compared is not looked at again.
    one.hashes[3] = "changed"
    assert follower.look([one, two], "exact").agreed_to == 39 != compare([one, two], "exact").agreed_to
