"""The path of imports, as for other launchers."""

from tests.session.launchers.conftest import _path as _path
