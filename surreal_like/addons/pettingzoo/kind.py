"""PettingZoo and MPE2 as a kind of environments, and PettingZoo's tests of them."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from session.program import install_line
from surreal_like.addons.pettingzoo.names import (
    PREFIX,
    extra_of_pettingzoo,
    list_pettingzoo,
    make_pettingzoo,
)
from surreal_like.env.check_findings import Report
from surreal_like.env.foreign_tests import run_test
from surreal_like.env.kinds import EnvironmentKind, Wanted

_CYCLES = 100


class PettingZoo(EnvironmentKind):
    """Environments of several agents, `pettingzoo:NAME` and `mpe2:MODULE`."""

    def build(self, wanted: Wanted) -> Any:
        """Builds an environment with the interface that the config chooses."""
        interface = str(wanted.env_config.get("multi_agent_api") or "auto")
        return make_pettingzoo(wanted.name, wanted.arguments, interface)

    def list_names(self) -> Sequence[str]:
        """Returns what PettingZoo registers."""
        return list_pettingzoo()

    def missing_extra(self, name: str) -> str:
        """Returns the extra that an environment of PettingZoo lacks here."""
        return extra_of_pettingzoo(name) if name.startswith(PREFIX) else ""

    def run_tests(self, report: Report, env: Any, build: Callable[[], Any]) -> None:
        """Runs PettingZoo's tests on an environment that extends one of its classes."""
        # What extends its classes has imported it.
        if zoo := sys.modules.get("pettingzoo"):
            _run_tests(zoo, report, env, build)


def _run_tests(zoo: Any, report: Report, env: Any, build: Callable[[], Any]) -> None:
    is_aec = isinstance(env, zoo.AECEnv)
    tests = _import_tests(report) if is_aec or isinstance(env, zoo.ParallelEnv) else None
    if tests is None:
        return
    prefix = "" if is_aec else "parallel_"
    test, seeds = (getattr(tests, prefix + name) for name in ("api_test", "seed_test"))
    run_test(report, f"{prefix}api_test", "PettingZoo's test", partial(test, env, _CYCLES))
    run_test(report, "seed_test", "PettingZoo's test", partial(seeds, build, _CYCLES))


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
