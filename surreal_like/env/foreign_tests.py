"""Tests that packages have for their environments, and what they find as findings."""

from __future__ import annotations

import contextlib
import io
import re
import traceback
import warnings
from collections.abc import Callable

from session.errors import describe
from surreal_like.env.check_findings import Report
from surreal_like.env.check_players import Player
from surreal_like.env.kinds import list_kinds

_MOST_WARNINGS = 3
# Colours of a terminal, and how Gymnasium begins a warning.
_ADDED = re.compile(r"\x1b\[\d+m|WARN: ")
# Warnings about bounds that need no change here.
_IGNORED = re.compile("This is probably too|symmetric and normalized")


def run_tests(report: Report, build: Callable[[contextlib.ExitStack], Player]) -> None:
    """Runs the tests of the package whose class an environment extends.

    Args:
        report: collects the findings.
        build: builds an environment, which the stack closes.
    """
    with contextlib.ExitStack() as stack:
        env = build(stack).foreign
        for kind in list_kinds() if env is not None else ():
            kind.run_tests(report, env, lambda: build(stack).foreign)


def run_test(report: Report, name: str, test_of: str, test: Callable[[], object]) -> None:
    """Runs a test without its output; it breaks no run, so what it finds is advice."""
    found = []
    with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        try:
            test()
        except AssertionError as error:
            line = traceback.extract_tb(error.__traceback__)[-1].line
            found.append(str(error) or f"an assertion failed: {line}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it must not end the checks
            found.append(describe(error))
    users = [str(one.message) for one in warned if issubclass(one.category, UserWarning)]
    texts = dict.fromkeys(_ADDED.sub("", text).strip() for text in users)
    found += [text for text in texts if not _IGNORED.search(text)][:_MOST_WARNINGS]
    if found:
        report.add("advice", name, f"{test_of} says: {'; '.join(found)}")
    else:
        report.add("ok", name, f"{test_of} found nothing")
