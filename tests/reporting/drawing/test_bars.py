"""Probabilities as bars."""

import numpy as np

from lockstep.reporting.drawing.bars import Bars

NOTE = "the first ball of an innings is not predicted: a forecast needs earlier balls"
NAMES = ("dot", "single", "six")


def test_a_bar_is_as_long_as_its_probability():
    picture = Bars(["A v B"], NAMES, [0.5, 0.25, 0.25], 1).paint()
    bar = [int((row == (90, 130, 190)).all(-1).sum()) for row in picture[[90, 156]]]
    # Near its top edge, above the label, which has the same colour.
    actual = int((picture[112] == (90, 200, 110)).all(-1).sum())
    assert bar == [231, 116] and actual == 116, "460 pixels are probability 1"


def test_what_was_not_predicted_says_why_inside_the_picture():
    plain, noted = (Bars([], NAMES, None, 0, note).paint().astype(int) for note in ("", NOTE))
    columns = np.nonzero((plain != noted).any((0, 2)))[0]
    assert columns.min() > 140 and 400 < columns.max() < 630
    assert Bars([], NAMES, None, 0, NOTE).to_json()["shares"] is None
