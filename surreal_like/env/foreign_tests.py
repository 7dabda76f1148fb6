"""Tests that Gymnasium and PettingZoo have for environments, and what they find as findings."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
from gymnasium.utils import env_checker

from session.errors import describe
from session.program import install_line
from surreal_like.env.findings import Report
from surreal_like.env.pettingzoo_names import is_installed
from surreal_like.env.players import Player

_CYCLES = 100
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
        if isinstance(env, gymnasium.Env):
            skipped = {"skip_render_check": True, "skip_close_check": True}
            test = partial(env_checker.check_env, env, **skipped)
            _run(report, "check_env", "Gymnasium's checker", test)
        elif env is not None and is_installed("pettingzoo"):
            _run_pettingzoo(report, env, lambda: build(stack).foreign)


def _run_pettingzoo(report: Report, env: Any, build: Callable[[], Any]) -> None:
    zoo: Any = importlib.import_module("pettingzoo")
    is_aec = isinstance(env, zoo.AECEnv)
    tests = _import_tests(report) if is_aec or isinstance(env, zoo.ParallelEnv) else None
    if tests is None:
        return
    prefix = "" if is_aec else "parallel_"
    test, seeds = (getattr(tests, prefix + name) for name in ("api_test", "seed_test"))
    _run(report, f"{prefix}api_test", "PettingZoo's test", partial(test, env, _CYCLES))
    _run(report, "seed_test", "PettingZoo's test", partial(seeds, build, _CYCLES))


def _import_tests(report: Report) -> Any:
    """Returns the module of PettingZoo's tests; None, with a note, if it cannot be imported."""
    # It imports some of PettingZoo's environments in a way that warns.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module("pettingzoo.test")
        except ImportError as error:
            text = f"PettingZoo's tests cannot be imported ({error}): {install_line('multi')}"
            report.add("advice", "api_test", text)
            return None


def _run(report: Report, name: str, test_of: str, test: Callable[[], object]) -> None:
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
