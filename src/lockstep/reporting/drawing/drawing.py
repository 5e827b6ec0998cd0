"""What a scene shows, described instead of painted: films paint it with Pillow, web pages on a canvas."""

import base64
import io
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_FEW_COLOURS = 256
"""A picture of no more colours is drawn, not rendered: PNG keeps its edges and is the smaller file."""
_JPEG_QUALITY = 85


Kind = Literal["picture", "board", "charts", "bars"]


class Drawing(Protocol):
    """A picture that can be painted at its own size, or sent as JSON to a page that paints it at any size."""

    kind: ClassVar[Kind]
    """How a page paints it; part of the JSON."""

    def paint(self) -> NDArray[np.uint8]:
        """(height, width, 3) red, green, blue."""

    def to_json(self) -> dict[str, Any]:
        """The drawing as JSON."""


@dataclass(frozen=True)
class Picture:
    """A finished image, such as a simulator's frame."""

    kind: ClassVar[Kind] = "picture"
    image: NDArray[np.uint8]
    """(height, width, 3) red, green, blue."""

    def paint(self) -> NDArray[np.uint8]:
        """The image itself."""
        return self.image

    def to_json(self) -> dict[str, Any]:
        """The image as a data URL, which needs no second request."""
        height, width, _ = self.image.shape
        picture, file = Image.fromarray(self.image), io.BytesIO()
        form = "png" if picture.getcolors(_FEW_COLOURS) else "jpeg"
        picture.save(file, form, **({} if form == "png" else {"quality": _JPEG_QUALITY}))
        data = base64.b64encode(file.getvalue()).decode()
        return {"kind": self.kind, "width": width, "height": height, "url": f"data:image/{form};base64,{data}"}
