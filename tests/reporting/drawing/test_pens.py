"""Text that fits the picture it is put on."""

from lockstep.reporting.drawing.pens import fitted, shortened, width_of, wrapped

CAPTION = "cartpole-swingup-sparse   step 1000   reward 0.93   return 876.5   time is up"


def test_a_long_caption_is_broken_between_its_parts():
    lines = wrapped(CAPTION, 300, 15, lines=2)
    assert "   ".join(lines) == CAPTION
    assert len(lines) == 2 and all(width_of(line, 15) <= 300 for line in lines)


def test_a_caption_that_does_not_fit_gets_smaller_letters():
    lines, size = fitted(CAPTION, 230, 15, lines=2)
    assert size < 15 and "   ".join(lines) == CAPTION
    assert all(width_of(line, size) <= 230 for line in lines)


def test_a_caption_that_can_never_fit_ends_in_an_ellipsis():
    (line,), size = fitted(CAPTION, 100, 15)
    assert line.startswith("cartpole") and line.endswith("…")
    assert width_of(line, size) <= 100
    assert shortened("short", 100, 15) == "short"
