"""The command line, for the tests of commands of add-ons."""

from tests.main.conftest import command as command
