"""Charts: round ticks, smooth lines, and drawings that a page can paint."""

import numpy as np
import pytest

from lockstep.reporting.drawing.chart import DARK, Band, Chart, Charts, Marks, written
from lockstep.reporting.drawing.ticks import round_ticks


@pytest.mark.parametrize(
    ("low", "high", "about", "ticks"),
    [
        (0, 252, 5, [0, 100, 200]),
        (0, 20, 6, [0, 5, 10, 15, 20]),
        (0.13, 0.47, 4, [0.2, 0.3, 0.4]),
        (-3, 3, 3, [-2, 0, 2]),
    ],
)
def test_ticks_are_round_numbers_inside_the_range(low, high, about, ticks):
    assert round_ticks(low, high, about) == pytest.approx(ticks)


@pytest.mark.parametrize(("days", "about", "ticks"), [(20, 8, [0, 5, 10, 15, 20]), (3, 8, [0, 1, 2, 3])])
def test_days_are_whole_numbers(days, about, ticks):
    assert round_ticks(0, days, about, whole=True) == ticks


def test_an_axis_can_end_at_ticks():
    assert round_ticks(98_731, 104_950, 4, outside=True) == [98_000, 100_000, 102_000, 104_000, 106_000]


def test_a_tick_has_the_decimals_that_its_step_needs():
    assert [written(value, 0.25) for value in (0, 0.25, -0.5)] == ["0.00", "0.25", "-0.50"]
    assert [written(value, 2500.0) for value in (-1e-12, 100_000)] == ["0", "100,000"]


def test_lines_have_smooth_edges():
    picture = Chart("one", {"a": [0.0, 1.0, 0.2]}, size=(300, 200)).paint()
    # A hard-edged line has its own colour alone; a smooth one also has shades between it and the ground.
    shades = {tuple(pixel) for pixel in picture[60:150, 90:270].reshape(-1, 3).tolist()}
    assert picture.shape == (200, 300, 3) and len(shades) > 10


def test_a_chart_of_one_point_or_of_a_constant_is_drawn():
    assert Chart("", {"a": [5.0]}, size=(200, 150)).paint().shape == (150, 200, 3)
    assert Chart("", {"a": [0.0, 0.0]}, band=Band([0, 0], [0, 0], "a"), size=(200, 150)).paint().shape == (150, 200, 3)


def test_charts_stand_one_above_the_other_and_are_sent_as_numbers():
    marks = [Marks("opened", [0], (1, 2, 3))]
    one = Chart("price", {"price": [100.0, 101.123456789]}, 20, marks=marks, size=(200, 150), theme=DARK)
    both = Charts([one, Chart("account", {"account": np.array([1.0])}, size=(200, 150))])
    assert both.paint().shape == (300, 200, 3)
    sent = both.to_json()
    assert [chart["title"] for chart in sent["charts"]] == ["price", "account"]
    assert sent["charts"][0]["lines"] == [{"name": "price", "values": [100.0, 101.1235]}]
    assert sent["charts"][0]["days"] == 20 and sent["charts"][0]["marks"][0]["days"] == [0]
