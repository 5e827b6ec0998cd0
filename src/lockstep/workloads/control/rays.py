"""Draws a scene by casting rays with MuJoCo itself, on the CPU and without OpenGL. Needs no torch.

Bodies, floors and textures of planes are drawn; lit by a lamp at the camera, without shadows and reflections. Sites,
which are marks and not bodies, and skins are not drawn. P: rays of an image.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.errors import UserError

Colours = NDArray[np.float32]
_SAMPLES = 2
"""Rays per pixel and axis: their mean smooths edges, so that movements of less than a pixel can be seen."""
_SHOWN = np.array([1, 1, 1, 0, 0, 0], np.uint8)
"""Groups of geoms that MuJoCo's own pictures show; the others are for collisions only."""
_FARTHEST = 1e10
_AMBIENT, _DIFFUSE = 0.4, 0.6
_GREY = (0.5, 0.5, 0.5, 1.0)
"""MuJoCo's default colour, in place of which the material's is used."""
_ZENITH, _HORIZON = np.array([0.4, 0.6, 0.8], np.float32), np.array([0.06, 0.09, 0.12], np.float32)
"""Colours of the sky."""
_RGB = 1  # the role of a material's plain colour texture (mjTEXROLE_RGB)


class RayCamera:
    """One camera of a model, for images of one size."""

    def __init__(self, model: Any, camera: int, height: int, width: int) -> None:
        """`model`: an `mjModel`. `camera`: its number."""
        self._model, self._camera, self._size = model, camera, (height, width)
        reach = np.tan(np.radians(model.cam_fovy[camera]) / 2)
        rows, columns = (_centres(size * _SAMPLES) for size in (height, width))
        # Looking along -z with y up; the field of view is the vertical one.
        directions = np.stack(np.broadcast_arrays(columns * reach * width / height, -rows[:, None] * reach, -1.0), -1)
        directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
        self._directions = directions.reshape(-1, 3)
        self._colours = np.array([_colour(model, geom) for geom in range(model.ngeom)], np.float32)
        self._floors = [(geom, texture) for geom in range(model.ngeom) if (texture := _floor_texture(model, geom))]

    def draw(self, data: Any) -> NDArray[np.uint8]:
        """An image (height, width, 3) of an `mjData`."""
        import mujoco

        position, rotation = data.cam_xpos[self._camera], data.cam_xmat[self._camera].reshape(3, 3)
        rays = self._directions @ rotation.T
        count = len(rays)
        geom, distance, normal = np.empty(count, np.int32), np.empty(count), np.empty(3 * count)
        start, along = position.copy(), rays.ravel()
        try:
            mujoco.mj_multiRay(
                self._model, data, start, along, _SHOWN, True, -1, geom, distance, normal, count, _FARTHEST
            )
        except TypeError as error:
            raise UserError(
                f"renderer rays: mujoco {mujoco.__version__} is too old to return normals; choose renderer mujoco"
            ) from error
        colours = self._colours[geom]
        for floor, texture in self._floors:
            hit = geom == floor
            place = position + rays[hit] * distance[hit, None] - data.geom_xpos[floor]
            colours[hit] *= texture.at(place @ data.geom_xmat[floor].reshape(3, 3)[:, :2])
        facing = np.abs(np.einsum("pc,pc->p", normal.reshape(-1, 3), rays)).astype(np.float32)
        colours *= (_AMBIENT + _DIFFUSE * facing)[:, None]
        missed = geom < 0
        up = np.clip(rays[missed, 2:], 0, 1).astype(np.float32)
        colours[missed] = _HORIZON + (_ZENITH - _HORIZON) * up
        return self._pixels(colours)

    def _pixels(self, colours: Colours) -> NDArray[np.uint8]:
        """Average the rays (P, 3) of each pixel: (height, width, 3)."""
        height, width = self._size
        mean = colours.reshape(height, _SAMPLES, width, _SAMPLES, 3).mean((1, 3))
        return (np.clip(mean, 0, 1) * 255 + 0.5).astype(np.uint8)


class _Texture:
    """The texture of a plane, repeated along its two axes."""

    def __init__(self, pixels: Colours, scale: NDArray[np.float64]) -> None:
        """`pixels` (height, width, 3). `scale` (2,): repetitions per metre."""
        self._pixels, self._scale = pixels, scale

    def at(self, place: NDArray[np.float64]) -> Colours:
        """Colours (P, 3) at places (P, 2) of the plane."""
        height, width = self._pixels.shape[:2]
        column, row = (np.mod(place * self._scale, 1.0) * (width, height)).astype(np.int64).T
        # A remainder just below 1 can round up to the size itself.
        return self._pixels[np.minimum(row, height - 1), np.minimum(column, width - 1)]


def _centres(count: int) -> NDArray[np.float64]:
    """The centres of `count` equal parts of -1..1."""
    return (np.arange(count) + 0.5) / count * 2 - 1


def _colour(model: Any, geom: int) -> NDArray[np.float32]:
    material = model.geom_matid[geom]
    own = model.geom_rgba[geom]
    return model.mat_rgba[material, :3] if material >= 0 and np.array_equal(own, _GREY) else own[:3]


def _floor_texture(model: Any, geom: int) -> _Texture | None:
    """The texture of a geom if it is a plane that has one."""
    import mujoco

    material = model.geom_matid[geom]
    if model.geom_type[geom] != mujoco.mjtGeom.mjGEOM_PLANE or material < 0:
        return None
    texture = model.mat_texid[material, _RGB]
    if texture < 0:
        return None
    start, height, width = model.tex_adr[texture], model.tex_height[texture], model.tex_width[texture]
    depth = model.tex_nchannel[texture]
    data = model.tex_data[start : start + height * width * depth].reshape(height, width, depth)[..., :3]
    repeat, size = model.mat_texrepeat[material], model.geom_size[geom, :2]
    # A plane of size 0 is endless: its texture can only be repeated by length.
    scale = repeat if model.mat_texuniform[material] or not size.all() else repeat / (2 * size)
    return _Texture(data.astype(np.float32) / 255, scale.astype(np.float64))
