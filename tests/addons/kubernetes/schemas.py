"""The schemas of Kubernetes, read where a test asks for them: their import takes seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class InvalidError(Exception):
    """A cluster of this version would refuse the object; the text says what is wrong."""


def validate(data: Mapping[str, Any], version: str) -> None:
    """Raise :class:`InvalidError` for an object that this version would refuse."""
    import kubernetes_validate

    try:
        kubernetes_validate.validate(data, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        raise InvalidError(error.message) from None
