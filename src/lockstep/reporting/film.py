"""Films: what there is to see of a game, scene by scene, written as a GIF or an MP4."""

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
"""Frames a second: viewers slow down a GIF that wants more."""
_BACKGROUND, _INK = (16, 18, 24), (214, 218, 224)
_CAPTION_HEIGHT = 28
_FONT_SIZE = 15
_PALETTE_SIZE = 255  # A GIF has 256, and one of them says that a pixel stays as it was.
_PAUSE = 1.5
"""Seconds that the last scene of an episode stays."""


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
    frames = _timed(scenes, fps)
    first = next(frames)
    temporary = _temporary(path)
    try:
        first.save(temporary, save_all=True, append_images=frames, loop=0)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_mp4(scenes: Iterable[Scene], path: Path, fps: float) -> None:
    """Write scenes as an MP4 (H.264) that every player shows. Needs imageio-ffmpeg."""
    import imageio_ffmpeg

    scenes = iter(scenes)
    first = next(scenes)
    size = _picture(first, even=True).size
    temporary = _temporary(path)
    writer = imageio_ffmpeg.write_frames(
        str(temporary), size, fps=fps, codec="libx264", quality=8, macro_block_size=2, ffmpeg_log_level="error"
    )
    try:
        writer.send(None)
        for scene, last in _with_last(chain([first], scenes)):
            frame = _picture(scene, even=True).tobytes()
            for _ in range(1 + (round(_PAUSE * fps) if scene.ended or last else 0)):
                writer.send(frame)
        writer.close()
        temporary.replace(path)
    finally:
        writer.close()
        temporary.unlink(missing_ok=True)


class _Palette:
    """The colours of a film in the order of their appearance: what two frames share, they share as the same number."""

    def __init__(self) -> None:
        self._colours: list[Any] = []

    def paint(self, picture: Image.Image) -> Image.Image:
        """The picture in exactly its colours; in the nearest ones where the film has more than a palette holds."""
        found = [colour for _, colour in picture.getcolors(_PALETTE_SIZE) or []]
        self._colours += [colour for colour in found if colour not in self._colours]
        if not found or len(self._colours) > _PALETTE_SIZE:
            return picture.quantize(_PALETTE_SIZE, dither=Image.Dither.NONE)
        packing = np.array([1 << 16, 1 << 8, 1], np.uint32)
        colours, pixels = np.array(self._colours, np.uint32) @ packing, np.asarray(picture).astype(np.uint32) @ packing
        order = np.argsort(colours)
        frame = Image.fromarray(order[np.searchsorted(colours, pixels, sorter=order)].astype(np.uint8))
        frame.putpalette([level for colour in self._colours for level in colour])
        return frame


def _timed(scenes: Iterable[Scene], fps: float) -> Iterator[Image.Image]:
    """Pictures with a palette, each with the milliseconds that it stays."""
    palette = _Palette()
    for scene, last in _with_last(scenes):
        frame = palette.paint(_picture(scene))
        frame.info["duration"] = round(1000 / fps + (1000 * _PAUSE if scene.ended or last else 0))
        yield frame


def _with_last(scenes: Iterable[Scene]) -> Iterator[tuple[Scene, bool]]:
    """Each scene and whether it is the last."""
    waiting: Scene | None = None
    for scene in scenes:
        if waiting is not None:
            yield waiting, False
        waiting = scene
    if waiting is not None:
        yield waiting, True


def _picture(scene: Scene, even: bool = False) -> Image.Image:
    """The image with its caption below; with even sides where the format asks for them."""
    height, width, _ = scene.image.shape
    step = 2 if even else 1
    size = -(-width // step) * step, -(-(height + _CAPTION_HEIGHT) // step) * step
    picture = Image.new("RGB", size, _BACKGROUND)
    picture.paste(Image.fromarray(scene.image), (0, 0))
    line = Image.new("L", (width, _CAPTION_HEIGHT))
    ImageDraw.Draw(line).text((10, _CAPTION_HEIGHT // 2), scene.caption, fill=255, font=_font(), anchor="lm")
    # Soft edges in four shades instead of a hundred, which every frame of a GIF would have to list.
    picture.paste(_INK, (0, height), line.point(lambda level: level // 64 * 85))
    return picture


@cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(_FONT_SIZE)


def _temporary(path: Path) -> Path:
    # The suffix stays: it tells the writers which format is meant.
    return path.with_name(temporary_name(path.stem) + path.suffix)
