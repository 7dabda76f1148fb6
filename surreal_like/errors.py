"""The errors of surreal_like, below the tree of `session/errors.py`.

```
SurrealError
├── ConfigError         2
│   └── SpecError       2   specs that are wrong, or differ from the environment's
└── DataError           1   an array that does not match its spec
    └── MissingColumn   1   a column of a batch that nothing gives
```
"""

from __future__ import annotations

from session.errors import ConfigError, SurrealError


class SpecError(ConfigError):
    """Specs are malformed, differ from the environment's, or do not suit the algorithm."""


class DataError(SurrealError):
    """An environment or agent returned a NaN, a wrong dtype or a wrong shape; names the field."""


class MissingColumn(DataError, AttributeError, KeyError):
    """A loss or an operator reads a column that the batch does not have."""

    # That of KeyError would put the message in quotes.
    __str__ = Exception.__str__


def unwritten(owner: object, method: str, page: str) -> NotImplementedError:
    """Returns the error of a method that an author has to write: names method, class and page of
    the documentation.
    """
    name = type(owner).__name__
    return NotImplementedError(f"{name} must implement {method}: see docs/{page}")
