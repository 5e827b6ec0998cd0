"""Videos: frames, pauses, colours, and no leftovers of an interrupted write."""

import numpy as np
import pytest
from PIL import Image

from lockstep.reporting.film import Scene, write_gif, write_mp4


def scenes(count, ended=(), height=40, width=60):
    """Distinguishable frames: the n-th has the colour (n, 100, 50)."""
    for number in range(count):
        image = np.full((height, width, 3), (10 * number, 100, 50), np.uint8)
        yield Scene("", image, f"frame {number}", ended=number in ended)


def durations(path):
    with Image.open(path) as film:
        found = []
        for number in range(film.n_frames):
            film.seek(number)
            found.append(film.info["duration"])
        return found


def test_a_gif_shows_every_scene_in_its_colours_and_loops(tmp_path):
    write_gif(scenes(5), tmp_path / "film.gif", fps=10)
    with Image.open(tmp_path / "film.gif") as film:
        assert (film.n_frames, film.info["loop"]) == (5, 0)
        for number in range(5):
            film.seek(number)
            assert film.convert("RGB").getpixel((30, 20)) == (10 * number, 100, 50)


def test_a_gif_pauses_at_the_end_of_an_episode_and_of_the_video(tmp_path):
    write_gif(scenes(5, ended={1}), tmp_path / "film.gif", fps=20)
    assert durations(tmp_path / "film.gif") == [50, 1550, 50, 50, 1550]


def test_a_caption_is_drawn_below_the_image(tmp_path):
    write_gif(scenes(2), tmp_path / "film.gif", fps=10)
    with Image.open(tmp_path / "film.gif") as film:
        assert film.width == 60
        caption = np.asarray(film.convert("RGB"))[40:]
    assert len(caption) > 0
    assert caption.max() > 200 > 30 > caption.min()


def test_a_gif_with_too_many_colours_uses_the_nearest_ones(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    write_gif([Scene("", noise, ""), Scene("", noise[::-1], "")], tmp_path / "film.gif", fps=10)
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == 2
        shown = np.asarray(film.convert("RGB"))[:64].astype(int)
    assert np.abs(shown - noise).mean() < 30


def test_a_video_may_have_a_single_scene(tmp_path):
    write_gif(scenes(1), tmp_path / "film.gif", fps=10)
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == 1


def test_an_mp4_has_even_sides_and_pauses_at_its_end(tmp_path):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    write_mp4(scenes(4, height=41, width=61), tmp_path / "film.mp4", fps=10)
    reader = imageio_ffmpeg.read_frames(str(tmp_path / "film.mp4"))
    about = next(reader)
    frames = [np.frombuffer(frame, np.uint8) for frame in reader]
    width, height = about["size"]
    assert (about["codec"], about["fps"], width % 2, height % 2) == ("h264", 10.0, 0, 0)
    assert len(frames) == 4 + 15
    middle = [frame.reshape(height, width, 3)[20, 30].astype(int) for frame in frames]
    assert np.abs(middle[0] - (0, 100, 50)).max() < 12
    assert np.abs(middle[-1] - (30, 100, 50)).max() < 12


@pytest.mark.parametrize(("write", "name"), [(write_gif, "film.gif"), (write_mp4, "film.mp4")])
def test_an_interrupted_video_leaves_no_file(tmp_path, write, name):
    def broken():
        yield from scenes(3)
        raise RuntimeError("the game crashed")

    with pytest.raises(RuntimeError, match="the game crashed"):
        write(broken(), tmp_path / name, fps=10)
    assert list(tmp_path.iterdir()) == []


def test_a_caption_that_outgrows_a_narrow_picture_still_fits(tmp_path):
    def growing():
        image = np.zeros((40, 320, 3), np.uint8)
        start = "cartpole-swingup-sparse   step 0   reward 0.00   return 0.0"
        yield Scene("", image, start)
        yield Scene("", image, "cartpole-swingup-sparse   step 1000   reward 0.93   return 876.5   time is up")

    write_gif(growing(), tmp_path / "film.gif", fps=10)
    with Image.open(tmp_path / "film.gif") as film:
        film.seek(1)
        last = np.asarray(film.convert("RGB")).astype(int)
    assert last.shape == (88, 320, 3)
    assert (last[40:, 311:].max(-1) < 60).all(), "nothing is cut off at the right edge"
    # Two lines of letters, with the ending in the second.
    assert last[44:64].max() > 150 and last[66:86].max() > 150
