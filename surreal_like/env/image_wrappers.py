"""Wrappers around one Env that change images, for use in `env_config.wrappers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from session import nest
from session.errors import ConfigError
from session.nest import Nest
from surreal_like.data.spec import is_leaf, plain
from surreal_like.env.environment import Env, ObservationWrapper


class ImageWrapper(ObservationWrapper):
    """Changes the images in observations: arrays with three axes, alone or in a nest.

    A derived class defines which arrays are images, and the changes of images and shapes.
    keys: paths of the parts to change, such as `camera` or `arm/camera`; empty: all images.
    Raises ConfigError where such a part is no image, or where there is none.
    """

    def __init__(self, env: Env, keys: Sequence[str] = ()) -> None:
        super().__init__(env)
        self._shapes: dict[str, tuple[int, ...]] = {}
        spec = plain(env.obs_spec)
        self.obs_spec = self._change(spec, "", keys)
        if not self._shapes or set(keys) - set(self._shapes):
            raise ConfigError(
                f"{type(self).__name__}: {', '.join(keys) or 'no part'} of the observations is an "
                f"image that it can change: obs_spec is {spec}"
            )

    def is_image(self, shape: tuple[int, ...]) -> bool:
        """Returns True if arrays of this shape are changed."""
        return len(shape) == 3

    def new_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of an image from `change`."""
        raise NotImplementedError

    def change(self, image: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns the changed image, of the same dtype."""
        raise NotImplementedError

    def _change(self, spec: Any, path: str, keys: Sequence[str]) -> dict[str, Any]:
        if not is_leaf(spec):
            below = f"{path}/" if path else ""
            return {key: self._change(one, f"{below}{key}", keys) for key, one in spec.items()}
        shape = tuple(spec["dim"])
        if (keys and path not in keys) or not self.is_image(shape):
            return dict(spec)
        self._shapes[path] = shape
        # Bounds of single pixels would be at other places.
        kept = {key: value for key, value in spec.items() if not isinstance(value, list)}
        return {**kept, "dim": list(self.new_shape(shape))}

    def change_obs(self, obs: Any) -> Nest:
        """Returns observations with changed images."""
        leaves = nest.flatten(obs)
        for path, shape in self._shapes.items():
            image = np.asarray(leaves[path]) if path in leaves else None
            # The check of observations reports an image that does not fit its spec.
            if image is not None and image.shape == shape:
                leaves[path] = self.change(image)
        return nest.unflatten(leaves)


class Transpose(ImageWrapper):
    """Puts the channels in front: `[height, width, channels]` to `[channels, height, width]`."""

    def new_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Channels, height, width."""
        height, width, channels = shape
        return channels, height, width

    def change(self, image: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The same pixels in another order."""
        return np.ascontiguousarray(image.transpose(2, 0, 1))


class Grayscale(ImageWrapper):
    """Makes colour images gray, `[height, width]`: 0.299 red + 0.587 green + 0.114 blue.

    Images are `[height, width, 3]` or `[3, height, width]`. The weights are those of ITU-R
    BT.601; whole numbers are rounded.
    """

    _WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)

    def is_image(self, shape: tuple[int, ...]) -> bool:
        """True for three colours, on the first or the last axis."""
        return len(shape) == 3 and 3 in (shape[0], shape[2])

    def new_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape without the axis of the colours."""
        return shape[:2] if shape[2] == 3 else shape[1:]

    def change(self, image: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The brightness of each pixel."""
        gray = np.tensordot(image, self._WEIGHTS, (2 if image.shape[2] == 3 else 0, 0))
        changed: npt.NDArray[Any] = gray if image.dtype.kind == "f" else gray.round()
        return changed.astype(image.dtype)
