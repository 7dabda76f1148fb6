"""What is made of what kubectl says: rows of the table, and one line where it fails."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from session.addons.kubernetes.kubectl import Kubectl, condition, find_kubectl
from session.addons.kubernetes.run import KubernetesRun
from session.addons.kubernetes.table import containers_of, row_of
from session.config import Config
from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.handle import open_run
from tests.addons.kubernetes.conftest import setting_of

Data = dict[str, Any]


def pod(name: str, part: str, *containers: Data, **metadata: str) -> Data:
    return {
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/component": part},
            **metadata,
        },
        "spec": {"containers": [{"name": each["name"]} for each in containers]},
        "status": {"containerStatuses": [each for each in containers if "state" in each]},
    }


def status(name: str, state: Data, **more: object) -> Data:
    return {"name": name, "state": state, "restartCount": 0, "ready": False, **more}


def rows(*pods: Data) -> dict[str, Any]:
    found = containers_of({"items": list(pods)}, "run")
    return {name: row_of(container, {}) for name, container in found.items()}


def test_components_are_called_as_everywhere() -> None:
    running: Data = {"running": {}}
    found = rows(
        pod("run-agent-3", "agent", status("agent", running)),
        pod("run-eval-0", "eval", status("eval", running)),
        pod("run-replay-1", "replay", status("replay", running)),
        pod("run-replay-left-1", "replay-left", status("replay", running)),
        pod("run-learner-x7k2p", "learner", status("learner", running)),
        pod(
            "run-tensorplex-5d-abc",
            "tensorplex",
            status("tensorplex", running),
            status("tensorboard", running),
        ),
    )
    assert set(found) == {
        *("agent-3", "eval-0", "replay-1", "replay-left-1", "learner"),
        *("tensorplex", "tensorboard"),
    }


@pytest.mark.parametrize(
    ("container", "state", "doing", "exit_code"),
    [
        ({"name": "agent"}, "waiting", "for a node", None),
        (
            status("agent", {"waiting": {"reason": "ImagePullBackOff", "message": "no such"}}),
            "waiting",
            "ImagePullBackOff: no such",
            None,
        ),
        (status("agent", {"running": {}}), "starting", "", None),
        (status("agent", {"running": {}}, started=True), "running", "not ready", None),
        (status("agent", {"running": {}}, started=True, ready=True), "running", "", None),
        (status("agent", {"terminated": {"exitCode": 0}}), "gone", "", 0),
        (status("agent", {"terminated": {"exitCode": 75}}), "gone", "", 75),
    ],
)
def test_states(container: Data, state: str, doing: str, exit_code: int | None) -> None:
    row = rows(pod("run-agent-0", "agent", container))["agent-0"]
    assert (row.state, row.doing, row.exit_code) == (state, doing, exit_code)


def test_a_pod_without_a_node_says_why() -> None:
    waits = pod("run-agent-0", "agent", {"name": "agent"})
    found = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    waits["status"]["conditions"] = [{**found, "message": "0/3 nodes are available."}]
    row = rows(waits)["agent-0"]
    assert (row.state, row.doing) == ("waiting", "Unschedulable: 0/3 nodes are available.")


def test_a_pod_that_is_being_ended_drains() -> None:
    ending = pod(
        "run-agent-0", "agent", status("agent", {"running": {}}), deletionTimestamp="2030-01-01"
    )
    assert rows(ending)["agent-0"].state == "draining"


def test_the_newest_pod_of_a_component_counts() -> None:
    old = pod(
        "run-learner-a",
        "learner",
        status("learner", {"terminated": {"exitCode": 75}}),
        creationTimestamp="2030-01-01T00:00:00Z",
    )
    new = pod(
        "run-learner-b",
        "learner",
        status("learner", {"running": {}}),
        creationTimestamp="2030-01-01T00:01:00Z",
    )
    for pods in ((old, new), (new, old)):
        assert rows(*pods)["learner"].state == "starting"


def test_the_last_death_is_shown() -> None:
    died = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    container = status("agent", {"running": {}}, lastState=died, restartCount=2)
    row = rows(pod("run-agent-0", "agent", container))["agent-0"]
    assert (row.died, row.restarts) == ("OOMKilled, exit code 137", 2)
    assert row.died_seconds is None
    for ended in ("2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"):
        died["terminated"]["finishedAt"] = ended
        row = rows(pod("run-agent-0", "agent", container))["agent-0"]
        assert row.died_seconds is not None
        # A clock that is ahead of ours.
        assert (row.died_seconds == 0.0) == ended.startswith("2100")
    container["lastState"]["terminated"]["exitCode"] = 0
    assert rows(pod("run-agent-0", "agent", container))["agent-0"].died == ""


def test_conditions() -> None:
    job = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert condition(job, "Complete")
    assert not condition(job, "Failed")
    assert not condition({}, "Complete")


# -- kubectl that says what it is told to say ---------------------------------------------------


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What kubectl writes to standard error before it fails, in a file."""
    text = tmp_path / "said"
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat {text} >&2\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            'E1121 12:00:00.000000    1 memcache.go:265] "Unhandled Error" err="refused"\n'
            "The connection to the server localhost:8080 was refused - did you specify ...?\n",
            "no cluster answers: The connection to the server localhost:8080 was refused",
        ),
        (
            "Unable to connect to the server: dial tcp: lookup c: no such host\n",
            "no cluster answers: Unable to connect to the server",
        ),
        ('error: context "nope" does not exist\n', 'kubectl get: context "nope" does not exist'),
        (
            'Error from server (NotFound): namespaces "a" not found\n' * 3,
            'kubectl get: Error from server (NotFound): namespaces "a" not found',
        ),
        ("", "kubectl get: it left no word"),
    ],
)
def test_a_failure_is_one_line(said: Path, text: str, line: str) -> None:
    said.write_text(text)
    with pytest.raises(UsageError) as caught:
        Kubectl(setting_of().config).run("get", "pods")
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_without_kubectl_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/dev/null/bin")
    with pytest.raises(UsageError, match=r"no kubectl on the PATH: install it.*plan"):
        find_kubectl()


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        KubernetesRun(RunFolder(tmp_path))


def test_a_run_knows_its_launcher(tmp_path: Path, said: Path) -> None:
    config: Config = setting_of().config
    config.dump_file(tmp_path / "config.yaml")
    with open_run(tmp_path) as run:
        assert isinstance(run, KubernetesRun)
        assert run.folder.path == tmp_path


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize("ends", [True, False])
def test_a_learner_that_ends_at_once_is_stopped_though_the_command_in_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    setting_of().config.dump_file(folder.config)
    running = pod("run-learner-x", "learner", status("learner", {"running": {}}))
    # Looked at before the command, and after it.
    conditions = [[], [], [{"type": "Complete", "status": "True"}] if ends else []]

    def get(self: Kubectl, what: str, *words: str) -> Data:
        if what == "pods":
            return {"items": [running]}
        looked = conditions.pop(0) if len(conditions) > 1 else conditions[0]
        return {"items": [{"status": {"conditions": looked}}]}

    def killed(self: Kubectl, *words: str) -> str:
        raise UsageError("kubectl exec: command terminated with exit code 137")

    monkeypatch.setattr(Kubectl, "get", get)
    monkeypatch.setattr(Kubectl, "inside", killed)
    monkeypatch.setattr("session.addons.kubernetes.run._LAST_LOOK_SECONDS", 0.3)
    run = KubernetesRun(folder)
    if ends:
        run.stop()
    else:
        with pytest.raises(UsageError, match="exit code 137"):
            run.stop()
