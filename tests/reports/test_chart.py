"""Charts: round ticks, everything inside the picture, the same for SVG and PNG."""

import xml.etree.ElementTree as ElementTree

import pytest
from PIL import Image

from lockstep.reporting.drawing.ticks import round_ticks
from lockstep.reports import number_text
from lockstep.reports.chart import Chart, Series, draw
from lockstep.reports.png import write_png
from lockstep.reports.recorded_run import Curve
from lockstep.reports.svg import svg


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 40_960, ["0", "10k", "20k", "30k", "40k"]),
        (-1.2, 0.5, ["-1.0", "-0.5", "0.0", "0.5"]),
        (0.011, 0.019, ["0.012", "0.014", "0.016", "0.018"]),
        (0, 3_000_000, ["0.0", "0.5M", "1.0M", "1.5M", "2.0M", "2.5M", "3.0M"]),
        (0, 1.3, ["0.00", "0.25", "0.50", "0.75", "1.00", "1.25"]),
        (5, 5, ["5"]),
    ],
)
def test_ticks_are_round_numbers_with_as_many_digits_as_they_need(low, high, expected):
    assert number_text.tick_texts(round_ticks(low, high, about=6)) == expected


@pytest.mark.parametrize(
    ("value", "text"), [(1234567.0, "1,234,567"), (0.12345, "0.1235"), (1e-7, "1e-07"), (None, "-")]
)
def test_measured_numbers_have_about_four_digits(value, text):
    assert number_text.short(value) == text


def chart(*curves):
    series = tuple(Series(f"run-{place}", curve, place) for place, curve in enumerate(curves))
    return Chart("eval/<b>", series, legend=len(curves) > 1)


def test_every_line_lies_inside_the_picture():
    several = [Curve(list(range(10, 500)), [(-1) ** n * n * 1e6 for n in range(490)]) for _ in range(12)]
    drawing = draw(chart(*several[:8]))
    for stroke in drawing.strokes:
        assert all(0 <= x <= drawing.width and 0 <= y <= drawing.height for x, y in stroke.points)
    assert all(0 <= label.y <= drawing.height for label in drawing.labels)


@pytest.mark.parametrize("curve", [Curve([5], [1.0]), Curve([5, 6], [0.0, 0.0]), Curve([1, 2], [1e300, -1e299])])
def test_a_single_point_a_flat_line_and_huge_numbers_can_be_drawn(curve):
    assert draw(chart(curve)).strokes


def test_a_curve_that_lies_on_another_is_dashed():
    same, other = Curve([1, 2, 9], [1.0, 2.0, 0.0]), Curve([1, 9], [5.0, 6.0])
    assert chart(same, other, same).overlaps and not chart(same, other).overlaps
    strokes = [stroke for stroke in draw(chart(same, other, same)).strokes if stroke.ink == "line"]
    # A dash of the legend each, the two whole curves, and pieces of the third.
    assert [sum(stroke.colour == colour for stroke in strokes) for colour in (0, 1)] == [2, 2]
    assert sum(stroke.colour == 2 for stroke in strokes) > 10
    nearly = Curve([1, 2, 9], [1.0, 2.0 + 1e-9, 0.0])
    strokes = [stroke for stroke in draw(chart(same, nearly)).strokes if stroke.ink == "line"]
    assert sum(stroke.colour == 1 for stroke in strokes) == 2, "a difference by rounding is a difference"


def test_an_svg_is_well_formed_and_escapes_its_texts():
    text = svg(draw(chart(Curve([1, 2], [1.0, 2.0]))), 'a "chart" <x>')
    tree = ElementTree.fromstring(text)
    assert "eval/<b>" in [node.text for node in tree.iter("text")]


def test_a_png_shows_the_curve_in_its_colour(tmp_path):
    write_png(draw(chart(Curve([1, 2], [1.0, 2.0]))), tmp_path / "a.png")
    picture = Image.open(tmp_path / "a.png")
    assert picture.size == (880, 500)
    assert any(blue > red + 80 for red, _, blue in picture.getdata())


def test_a_single_point_stands_at_the_end_of_an_axis_from_zero():
    drawing = draw(chart(Curve((106_496,), (5.675,))))
    texts = [label.text for label in drawing.labels]
    assert "0" in texts and "100k" in texts and not any(text.startswith("106") for text in texts)
