"""The shipped alert rules of Prometheus: checked, tried on series, and on a run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.polling import until
from tests.runs.by_hand import ByHand
from tests.runs.command import ROOT, Process
from tests.session.wire.rig import free_port

MONITORING = ROOT / "k8s" / "monitoring"
CASES = ROOT / "tests" / "session" / "tensorplex" / "alert_cases.yaml"
DOCUMENT = ROOT / "docs" / "monitoring.md"


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return list(group["rules"])


def check(*words: str | Path) -> None:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
def test_the_rules_are_valid_and_fire_as_their_cases_say() -> None:
    check("check", "rules", MONITORING / "alerts.yaml")
    check("test", "rules", CASES)


@pytest.mark.prometheus
def test_the_configurations_are_valid(tmp_path: Path) -> None:
    check("check", "config", MONITORING / "prometheus.yaml")
    # Debian's Prometheus is built without Kubernetes: all but the discovery is checked.
    config = yaml.safe_load((MONITORING / "prometheus_cluster.yaml").read_text())
    assert config["scrape_configs"][0].pop("kubernetes_sd_configs") == [{"role": "pod"}]
    config["rule_files"] = [str(MONITORING / "alerts.yaml")]
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(config))
    check("check", "config", tmp_path / "cluster.yaml")


def test_the_line_of_the_document_wraps_the_rules_for_the_operator() -> None:
    (line,) = re.findall(r"^\$ (\{ printf .*) \| kubectl .*$", DOCUMENT.read_text(), re.MULTILINE)
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    made = yaml.safe_load(done.stdout)
    assert (made["kind"], made["spec"]["groups"][0]["rules"]) == ("PrometheusRule", rules())


def test_every_rule_has_a_case_and_a_row_of_advice() -> None:
    names = [rule["alert"] for rule in rules()]
    fires = {
        each["alertname"]
        for test in yaml.safe_load(CASES.read_text())["tests"]
        for each in test["alert_rule_test"]
        if each.get("exp_alerts")
    }
    documented = re.findall(r"^\| `(SurrealLike\w+)` \|", DOCUMENT.read_text(), re.MULTILINE)
    assert names == documented
    assert set(names) == fires


class Prometheus:
    """A Prometheus that scrapes one page of this machine, with the shipped files made quick."""

    def __init__(self, folder: Path, page: int, **labels: str) -> None:
        config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
        config["global"] = {"scrape_interval": "250ms", "evaluation_interval": "250ms"}
        (target,) = config["scrape_configs"][0]["static_configs"]
        target["targets"] = [f"127.0.0.1:{page}"]
        target["labels"] |= labels
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        quick = re.sub(r"for: \d+m", "for: 1s", (MONITORING / "alerts.yaml").read_text())
        (folder / "alerts.yaml").write_text(quick)
        port = free_port()
        self._api = f"http://127.0.0.1:{port}/api/v1"
        self.argv = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]

    def ask(self, what: str, **words: str) -> Any:
        """Asks its API; None while it does not answer."""
        query = urllib.parse.urlencode(words)
        try:
            with urllib.request.urlopen(f"{self._api}/{what}?{query}", timeout=5) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def values(self, query: str) -> list[float]:
        """Returns the present values of a query."""
        found = self.ask("query", query=query) or {"result": []}
        return [float(each["value"][1]) for each in found["result"]]

    def firing(self) -> set[tuple[str, str]]:
        """Returns alert and component of those that fire; but for a full disk, which is ours."""
        found = (self.ask("alerts") or {"alerts": []})["alerts"]
        names = {
            (each["labels"]["alertname"], each["labels"].get("component", ""))
            for each in found
            if each["state"] == "firing"
        }
        return {each for each in names if each[0] != "SurrealLikeDiskFull"}


@contextmanager
def scraping(folder: Path, page: int, **labels: str) -> Iterator[Prometheus]:
    folder.mkdir()
    made = Prometheus(folder, page, **labels)
    with Process(made.argv, folder / "said.txt") as process:
        yield made
        assert process.running, process.words


@pytest.mark.slow
@pytest.mark.prometheus
@pytest.mark.timeout(300)
def test_an_alert_fires_when_a_component_is_down_and_clears_when_it_is_back(
    run_folder: Path, tmp_path: Path
) -> None:
    page = free_port()
    words = (
        f"session_config.tensorplex.prometheus_port={page}",
        "session_config.heartbeat.timeout=3",
        "session_config.stop={seconds: 280}",
    )
    with ByHand(run_folder, *words) as run, scraping(tmp_path / "prometheus", page) as prometheus:
        # The page is not there yet.
        until(lambda: ("SurrealLikeNotScraped", "") in prometheus.firing())
        run.start()
        until(lambda: prometheus.values("count(surreal_like_component_up == 1)") == [8.0])
        until(partial(prometheus.values, "rate(surreal_like_env_steps_total[5s]) > 0"))
        until(lambda: prometheus.firing() == set())
        assert prometheus.values("surreal_like_disk_free_bytes < surreal_like_disk_size_bytes")
        run.processes["agent-1"].end()
        until(lambda: prometheus.firing() == {("SurrealLikeComponentDown", "agent-1")})
        assert prometheus.values('surreal_like_component_up{component="agent-1"}') == [0.0]
        run.start("agent-1")
        until(lambda: prometheus.firing() == set())
        restarts = 'surreal_like_component_restarts_total{component="agent-1"}'
        assert prometheus.values(restarts) == [1.0]
        run.processes["learner"].end()
        until(lambda: ("SurrealLikeComponentDown", "learner") in prometheus.firing())
    shutil.rmtree(run.folder.sockets)
