"""The error tree: messages as written, exit codes, what catches what."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from session import errors
from session.config import Config
from session.program import install_line


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (errors.SurrealError, 1),
        (errors.ConfigError, 2),
        (errors.UsageError, 2),
        (errors.MissingExtra, 2),
        (errors.WireError, 1),
        (errors.DecodeError, 1),
        (errors.OversizeError, 1),
        (errors.DeadlineError, 1),
        (errors.RefusedError, 1),
        (errors.AdmissionError, 2),
        (errors.CheckpointError, 1),
        (errors.RunError, 1),
    ],
)
def test_message_and_exit_code(error: type[errors.SurrealError], exit_code: int) -> None:
    raised = error("what, where, what to do")
    assert raised.exit_code == exit_code
    for same in (raised, copy.copy(raised), pickle.loads(pickle.dumps(raised))):  # noqa: S301
        assert (type(same), str(same)) == (error, "what, where, what to do")
        assert isinstance(same, errors.SurrealError)


def test_config_error_is_what_attribute_and_item_access_raise() -> None:
    assert issubclass(errors.ConfigError, AttributeError)
    assert issubclass(errors.ConfigError, KeyError)


def test_wire_errors_share_a_parent() -> None:
    for error in (
        errors.DecodeError,
        errors.OversizeError,
        errors.DeadlineError,
        errors.RefusedError,
        errors.AdmissionError,
    ):
        assert issubclass(error, errors.WireError)


def test_missing_extra_says_what_to_install() -> None:
    error = errors.MissingExtra.named("gym:LunarLander-v3", "box2d")
    assert isinstance(error, errors.UsageError)
    assert str(error) == (
        f"gym:LunarLander-v3 needs a package that is not installed: {install_line('box2d')}"
    )


def fails(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no"), "ValueError('no')"),
        (errors.RunError("no, not here"), "no, not here"),
    ],
)
def test_the_line_of_an_error_says_where_in_the_users_code_it_was_raised(
    error: Exception, said: str
) -> None:
    with pytest.raises(type(error)) as caught:
        fails(error)
    line = fails.__code__.co_firstlineno + 1
    place = f"fails (tests/session/test_errors.py:{line})"
    assert errors.describe(caught.value) == f"{said}, in {place}"


def test_calls_of_the_library_and_of_installed_packages_are_not_the_users() -> None:
    def sort_key(value: int) -> int:
        return int(json.loads(f"{value} is no JSON"))

    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its text is the next line's
        sorted([1, 2], key=sort_key)
    assert "sort_key (tests/session/test_errors.py:" in errors.describe(caught.value)
    with pytest.raises(errors.ConfigError) as refused:
        Config({}).load_file("/dev/null/a.yaml")
    refused.value.__traceback__ = refused.value.__traceback__.tb_next  # type: ignore[union-attr]
    assert errors.describe(refused.value) == str(refused.value)
    unraised = KeyError("x")
    assert errors.describe(unraised) == "KeyError('x')"
