"""PettingZoo's own tests of an environment, and what they find as findings."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from session.errors import describe
from session.program import install_line
from surreal_like.env.findings import Report
from surreal_like.env.joint import JointEnv
from surreal_like.env.pettingzoo_names import is_installed

_CYCLES = 100
_MOST_WARNINGS = 3
_COLOURS = re.compile(r"\x1b\[\d+m")


def run_tests(report: Report, build: Callable[[], JointEnv]) -> None:
    """Runs PettingZoo's tests if it is installed and the environment is one of its classes.

    Args:
        report: collects the findings.
        build: builds an environment.
    """
    if not is_installed("pettingzoo"):
        return
    zoo: Any = importlib.import_module("pettingzoo")
    with contextlib.closing(build()) as joint:
        env = joint.env
        is_aec, is_parallel = isinstance(env, zoo.AECEnv), isinstance(env, zoo.ParallelEnv)
        if not (is_aec or is_parallel):
            return
        tests = _import_tests(report)
        if tests is None:
            return
        if is_aec:
            _run(report, "api_test", lambda: tests.api_test(env, _CYCLES))
        else:
            _run(report, "parallel_api_test", lambda: tests.parallel_api_test(env, _CYCLES))
    seed_test = tests.seed_test if is_aec else tests.parallel_seed_test
    _run(report, "seed_test", lambda: seed_test(lambda: build().env, _CYCLES))


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


def _run(report: Report, name: str, test: Callable[[], None]) -> None:
    """Runs a test without its output; it breaks no run, so what it finds is advice."""
    found = []
    with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        try:
            test()
        except AssertionError as error:
            line = traceback.extract_tb(error.__traceback__)[-1].line
            found.append(str(error) or f"an assertion failed: {line}")
        except Exception as error:  # noqa: BLE001 - a defect of the test must not end the checks
            found.append(describe(error))
    users = [str(one.message) for one in warned if issubclass(one.category, UserWarning)]
    found += list(dict.fromkeys(_COLOURS.sub("", text).strip() for text in users))[:_MOST_WARNINGS]
    if found:
        report.add("advice", name, f"PettingZoo's test says: {'; '.join(found)}")
    else:
        report.add("ok", name, "PettingZoo's test found nothing")
