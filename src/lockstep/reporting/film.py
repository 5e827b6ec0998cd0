"""Videos: the scenes of a game, written as a GIF or an MP4."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from lockstep.reporting.drawing import pens
from lockstep.reporting.drawing.drawing import Drawing, Picture
from lockstep.storage.disk import temporary_name

FASTEST_GIF = 50
"""Frames per second; viewers slow down a GIF that is faster."""
# Pixels.
_LINE_HEIGHT = 20
_MARGIN = 10
_FONT_SIZE = 15
_SPARE = 0.75
"""Share of the width that a film's first caption may fill on one line: numbers grow, and an ending is added."""
_PALETTE_SIZE = 255  # a GIF has 256 colours, one of which means that a pixel is unchanged
# Seconds for which the last scene of an episode is shown.
_PAUSE = 1.5


@dataclass(frozen=True)
class Scene:
    """One moment of a game."""

    text: str
    """For a terminal, with ANSI colours."""
    image: NDArray[np.uint8] | Drawing
    """(height, width, 3) red, green, blue; or a drawing, which is painted only where it is shown."""
    caption: str
    """What to put under the image; parts are separated by three spaces, where the line may be broken."""
    score: float = 0.0
    """The episode's return so far."""
    ended: bool = False
    """Whether this is the last scene of its episode."""

    @cached_property
    def drawing(self) -> Drawing:
        """The image as a drawing."""
        return Picture(self.image) if isinstance(self.image, np.ndarray) else self.image


def write_gif(scenes: Iterable[Scene], path: Path, fps: float) -> None:
    """Write scenes as a GIF that loops."""
    assert 0 < fps <= FASTEST_GIF
    # A generator: Pillow takes the frames one by one, and a long film is never in memory as a whole.
    frames = _timed(scenes, fps)
    first = next(frames)
    # Renamed at the end, so that an interrupted write does not leave half a video under the user's name.
    temporary = _temporary(path)
    try:
        first.save(temporary, save_all=True, append_images=frames, loop=0)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_mp4(scenes: Iterable[Scene], path: Path, fps: float) -> None:
    """Write scenes as an MP4 (H.264) that every player supports. Needs imageio-ffmpeg."""
    import imageio_ffmpeg  # an optional dependency

    scenes = iter(scenes)
    first = next(scenes)
    # H.264 stores colour at half the resolution, so that both sides must be even.
    paper = _Paper(first, even=True)
    temporary = _temporary(path)
    writer = imageio_ffmpeg.write_frames(
        str(temporary), paper.size, fps=fps, codec="libx264", quality=8, macro_block_size=2, ffmpeg_log_level="error"
    )
    try:
        writer.send(None)  # starts the generator, and ffmpeg with it
        for scene, last in _with_last(chain([first], scenes)):
            frame = paper.print(scene).tobytes()
            # Frames of an MP4 all last equally long, so that a pause is a repeated frame.
            for _ in range(1 + (round(_PAUSE * fps) if scene.ended or last else 0)):
                writer.send(frame)
        # Closing waits for ffmpeg to finish the file. In `finally` again, for errors; a second close does nothing.
        writer.close()
        temporary.replace(path)
    finally:
        writer.close()
        temporary.unlink(missing_ok=True)


class _Palette:
    """The colours of a video in order of appearance, so that a colour has the same index in every frame.

    Pillow then stores only what changed between frames.
    """

    def __init__(self) -> None:
        self._colours: list[Any] = []

    def paint(self, picture: Image.Image) -> Image.Image:
        """The picture with palette indices: its exact colours, or the nearest if the video has too many."""
        # getcolors returns None if there are more than it may list.
        found = [colour for _, colour in picture.getcolors(_PALETTE_SIZE) or []]
        self._colours += [colour for colour in found if colour not in self._colours]
        if not found or len(self._colours) > _PALETTE_SIZE:
            # Without dithering, whose noise would change every pixel of every frame.
            return picture.quantize(_PALETTE_SIZE, dither=Image.Dither.NONE)
        # One integer per colour, so that all pixels are looked up with one binary search.
        packing = np.array([1 << 16, 1 << 8, 1], np.uint32)
        colours, pixels = np.array(self._colours, np.uint32) @ packing, np.asarray(picture).astype(np.uint32) @ packing
        order = np.argsort(colours)
        frame = Image.fromarray(order[np.searchsorted(colours, pixels, sorter=order)].astype(np.uint8))
        frame.putpalette([level for colour in self._colours for level in colour])
        return frame


def _timed(scenes: Iterable[Scene], fps: float) -> Iterator[Image.Image]:
    """Pictures with a palette and their duration in milliseconds."""
    palette, paper = _Palette(), None
    for scene, last in _with_last(scenes):
        paper = paper or _Paper(scene)
        frame = palette.paint(paper.print(scene))
        frame.info["duration"] = round(1000 / fps + (1000 * _PAUSE if scene.ended or last else 0))
        yield frame


def _with_last(scenes: Iterable[Scene]) -> Iterator[tuple[Scene, bool]]:
    """Each scene and whether it is the last."""
    # One scene behind: an iterator does not say which item is its last.
    waiting: Scene | None = None
    for scene in scenes:
        if waiting is not None:
            yield waiting, False
        waiting = scene
    if waiting is not None:
        yield waiting, True


class _Paper:
    """The size of a film's frames, all as large as the first, and where the caption goes on them."""

    def __init__(self, first: Scene, even: bool = False) -> None:
        """`even`: round both sides up to even numbers."""
        height, width, _ = first.drawing.paint().shape
        self._width, self._top = width, height
        # Decided once: a film's frames have one size, and a caption that became longer needs room by then.
        narrow = pens.width_of(first.caption, _FONT_SIZE) > _SPARE * width - 2 * _MARGIN
        self._lines = 2 if narrow else 1
        step = 2 if even else 1
        # -(-a // b) rounds up.
        rows = height + _LINE_HEIGHT * self._lines + 8
        self.size = -(-width // step) * step, -(-rows // step) * step

    def print(self, scene: Scene) -> Image.Image:
        """The image with its caption below, in smaller letters if it would not fit."""
        picture = Image.new("RGB", self.size, pens.GROUND)
        picture.paste(Image.fromarray(scene.drawing.paint()), (0, 0))
        lines, size = pens.fitted(scene.caption, self._width - 2 * _MARGIN, _FONT_SIZE, self._lines)
        text = Image.new("L", (self._width, self.size[1] - self._top))
        pen, first = ImageDraw.Draw(text), (text.height - _LINE_HEIGHT * (len(lines) - 1)) / 2
        for number, line in enumerate(lines):
            pen.text((_MARGIN, first + number * _LINE_HEIGHT), line, fill=255, font=pens.font(size), anchor="lm")
        # Antialiased edges in four shades: a hundred would use up the palette of a GIF.
        picture.paste(pens.INK, (0, self._top), text.point(lambda level: level // 64 * 85))
        return picture


def _temporary(path: Path) -> Path:
    # The suffix stays at the end: the writers choose the format by it.
    return path.with_name(temporary_name(path.stem) + path.suffix)
