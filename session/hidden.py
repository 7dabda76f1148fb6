"""Hides secrets in texts that people and other programs read."""

from __future__ import annotations

import re

# User and password before the host of a URL; values of parameters that are named as secrets are.
_PASSWORD = re.compile(r"(://)[^/@\s:]*:[^/@\s]*@")
_PARAMETER = re.compile(r"([?&]\w*(?:token|secret|password|signature|sig|key)=)[^&\s]+", re.I)


def hide_secrets(text: str) -> str:
    """Returns a text with ``...`` in place of passwords and keys in its URLs."""
    return _PARAMETER.sub(r"\1...", _PASSWORD.sub(r"\1...@", text))
