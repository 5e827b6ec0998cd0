"""Videos: the scenes of a game, written as a GIF or an MP4."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from lockstep.storage.disk import temporary_name

FASTEST_GIF = 50
"""Frames per second; viewers slow down a GIF that is faster."""
_BACKGROUND, _INK = (16, 18, 24), (214, 218, 224)
# Pixels.
_CAPTION_HEIGHT = 28
_FONT_SIZE = 15
_PALETTE_SIZE = 255  # a GIF has 256 colours, one of which means that a pixel is unchanged
# Seconds for which the last scene of an episode is shown.
_PAUSE = 1.5


@dataclass(frozen=True)
class Scene:
    """One moment of a game."""

    text: str
    """For a terminal, with ANSI colours."""
    image: NDArray[np.uint8]
    """(height, width, 3) red, green, blue."""
    caption: str
    """One line to put under the image."""
    score: float = 0.0
    """The episode's return so far."""
    ended: bool = False
    """Whether this is the last scene of its episode."""


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
    size = _picture(first, even=True).size
    temporary = _temporary(path)
    writer = imageio_ffmpeg.write_frames(
        str(temporary), size, fps=fps, codec="libx264", quality=8, macro_block_size=2, ffmpeg_log_level="error"
    )
    try:
        writer.send(None)  # starts the generator, and ffmpeg with it
        for scene, last in _with_last(chain([first], scenes)):
            frame = _picture(scene, even=True).tobytes()
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
    palette = _Palette()
    for scene, last in _with_last(scenes):
        frame = palette.paint(_picture(scene))
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


def _picture(scene: Scene, even: bool = False) -> Image.Image:
    """The image with its caption below; `even`: with both sides rounded up to even numbers."""
    height, width, _ = scene.image.shape
    step = 2 if even else 1
    # -(-a // b) rounds up.
    size = -(-width // step) * step, -(-(height + _CAPTION_HEIGHT) // step) * step
    picture = Image.new("RGB", size, _BACKGROUND)
    picture.paste(Image.fromarray(scene.image), (0, 0))
    line = Image.new("L", (width, _CAPTION_HEIGHT))
    ImageDraw.Draw(line).text((10, _CAPTION_HEIGHT // 2), scene.caption, fill=255, font=_font(), anchor="lm")
    # Antialiased edges in four shades: a hundred would use up the palette of a GIF.
    picture.paste(_INK, (0, height), line.point(lambda level: level // 64 * 85))
    return picture


@cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(_FONT_SIZE)


def _temporary(path: Path) -> Path:
    # The suffix stays at the end: the writers choose the format by it.
    return path.with_name(temporary_name(path.stem) + path.suffix)
