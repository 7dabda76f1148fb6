"""Machines that join a run elsewhere: their objects, and what is reported of their pods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session.addons.engines.machines import COMMAND, MachineSpec, make_machines
from session.addons.kubernetes import engine as kubernetes
from session.addons.kubernetes.engine import make_objects, make_setting
from session.addons.kubernetes.kubectl import Kubectl
from session.errors import ConfigError, UsageError
from session.process.component import TOKEN
from tests.addons.kubernetes.schemas import validate
from tests.addons.kubernetes.test_objects import NEWEST, OLDEST
from tests.addons.kubernetes.test_run import pod, status

Data = dict[str, Any]
JOIN = ("join", "192.0.2.7:41391", "--keep-trying", "--agents", "2")
SECRET = "sl1-a-secret"
FULL: dict[str, Any] = {
    "image": "registry.example.org/me/surreal-like:1",
    "namespace": "science",
    "spot": "true",
    "labels": "{kueue.x-k8s.io/queue-name: robots}",
    "node_selector": "{pool: cheap}",
    "pods": "{agent: {imagePullSecrets: [{name: registry}], env: {A: 1}}}",
}


def order_of(*, cpu: float = 2.0, gpu: float = 0.0, **options: str) -> MachineSpec:
    folder = Path("/tmp/surreal-like-join-0a1b/machines")
    return MachineSpec((*COMMAND, *JOIN), SECRET, folder, cpu=cpu, gpu=gpu, options=options)


def objects_of(order: MachineSpec, number: int = 3) -> tuple[Data, Data]:
    secret, machines = make_objects(make_setting(order), order, number)
    return secret, machines


# -- the objects -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("order", [order_of(), order_of(gpu=0.5, **FULL)])
def test_objects_are_valid(order: MachineSpec, version: str) -> None:
    for each in objects_of(order):
        validate(each, version)


def test_a_pod_runs_join_in_its_image_with_its_own_folder() -> None:
    _, machines = objects_of(order_of())
    assert (machines["spec"]["replicas"], machines["spec"]["podManagementPolicy"]) == (
        3,
        "Parallel",
    )
    (container,) = machines["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["surreal-like"]
    assert container["args"] == [*JOIN, "--folder", "/tmp/machine-$(POD_INDEX)"]
    assert container["resources"]["requests"]["cpu"] == "2"
    assert container["resources"]["limits"] == {"memory": "2Gi"}


def test_a_pod_has_the_rights_of_an_agent_and_nothing_of_a_run() -> None:
    _, machines = objects_of(order_of())
    spec = machines["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert [each["name"] for each in spec["volumes"]] == ["tmp"]
    assert container["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]
    assert not [name for name in container if name.endswith("Probe")]
    assert {"key": "spot", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert "affinity" not in spec


def test_settings_reach_the_pods() -> None:
    _, machines = objects_of(order_of(gpu=0.5, **FULL))
    template = machines["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["image"] == FULL["image"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert machines["metadata"]["namespace"] == "science"
    assert template["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "robots"
    assert template["spec"]["nodeSelector"] == {"pool": "cheap"}
    assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert "nodeAffinity" in template["spec"]["affinity"]


def test_the_token_is_in_the_secret_only() -> None:
    secret, machines = objects_of(order_of())
    (token,) = secret["data"].values()
    assert SECRET not in json.dumps([secret, machines])
    assert token not in json.dumps(machines)
    (container,) = machines["spec"]["template"]["spec"]["containers"]
    (variable,) = [each for each in container["env"] if each["name"] == TOKEN]
    name = secret["metadata"]["name"]
    assert variable["valueFrom"] == {"secretKeyRef": {"name": name, "key": "token"}}


def test_names_and_labels_are_those_of_one_token() -> None:
    for order, name in ((order_of(), "surreal-like-join-0a1b"), (order_of(name="mine"), "mine")):
        secret, machines = objects_of(order)
        assert machines["metadata"]["name"] == f"{name}-machine"
        chosen = machines["spec"]["selector"]["matchLabels"]
        assert chosen["app.kubernetes.io/instance"] == name
        for each in (secret, machines, machines["spec"]["template"]):
            assert chosen.items() <= each["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"imag": "a"}, "engine kubernetes has no setting 'imag'; did you mean image"),
        ({"name": "Big"}, "name is 'Big': use lower case letters"),
        ({"spot": "maybe"}, "prefer_spot"),
        ({"pods": "{agent: {tolerationss: []}}"}, "has no field 'tolerationss'.*tolerations"),
        ({"labels": "{a b: c}"}, "labels has 'a b': use letters"),
    ],
)
def test_a_wrong_setting_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, UsageError), match=message) as caught:
        make_machines("kubernetes", order_of(**options))
    assert "\n" not in str(caught.value)


def test_without_kubectl_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/dev/null/bin")
    with pytest.raises(UsageError, match="no kubectl on the PATH"):
        make_machines("kubernetes", order_of())


# -- what has happened, from what kubectl says -----------------------------------------------------


class Answers:
    """Answers of kubectl; notes the commands."""

    def __init__(self, *pods: Data) -> None:
        self.pods = list(pods)
        self.failure = ""
        self.taken = ""
        self.commands: list[tuple[str, ...]] = []

    def run(self, _: Kubectl, *words: str, **given: object) -> str:
        self.commands.append(words)
        if self.failure:
            raise UsageError(self.failure)
        if "--ignore-not-found" in words:
            return self.taken
        return json.dumps({"items": self.pods}) if words[:2] == ("get", "pods") else ""


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    found = Answers()
    monkeypatch.setattr(Kubectl, "run", lambda *given, **more: found.run(*given, **more))
    monkeypatch.setattr("session.addons.kubernetes.kubectl.find_kubectl", lambda: "kubectl")
    monkeypatch.setattr(kubernetes, "_LOOK_SECONDS", 0.0)
    return found


def machine(
    state: Data, last: Data | None = None, *, made: int = 1, ending: bool = False, **more: object
) -> Data:
    """The pod of machine-0.

    Args:
        state: state of its process.
        last: state of the process before it.
        made: second in which the pod was made.
        ending: it was deleted.
        more: fields of its status.
    """
    container = status("machine", state, lastState=last or {}, restartCount=1 if last else 0)
    times = {"creationTimestamp": f"2030-01-01T00:00:0{made}Z"}
    if ending:
        times["deletionTimestamp"] = "2030-01-01T00:01:00Z"
    found = pod("mine-machine-0", "machine", container, **times)
    found["status"] |= more
    return found


def ended(code: int, reason: str = "Error") -> Data:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": f"{code}"}}


RUNS: Data = {"running": {}}
WAITS: Data = {"waiting": {"reason": "ContainerCreating"}}
UNSCHEDULABLE: dict[str, Any] = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient cpu.",
        }
    ]
}
EVICTED: dict[str, Any] = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": "The node was low on memory.",
}
PULLING = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "a"'}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, machine(WAITS), []),
        (None, machine(RUNS), ["started"]),
        (machine(RUNS), machine(RUNS), []),
        (machine(RUNS), machine(ended(1)), ["lost: Error, exit code 1"]),
        (machine(RUNS), machine(BACK_OFF, ended(1)), ["lost: Error, exit code 1"]),
        (
            machine(RUNS),
            machine(RUNS, ended(137, "OOMKilled")),
            ["lost: OOMKilled, exit code 137", "started"],
        ),
        (machine(BACK_OFF, ended(1)), machine(ended(1), ended(1)), []),
        (machine(WAITS), machine(BACK_OFF, ended(2)), ["lost: Error, exit code 2"]),
        (machine(RUNS), machine(ended(0)), ["ended"]),
        (machine(RUNS), machine(RUNS, ending=True), []),
        (machine(RUNS), machine(ended(0), ending=True), ["lost: its pod was deleted"]),
        (machine(RUNS), None, ["lost: its pod was deleted"]),
        (machine(RUNS), machine(WAITS, made=2), ["lost: its pod was deleted"]),
        (machine(RUNS), machine(RUNS, made=2), ["lost: its pod was deleted", "started"]),
        (
            machine(RUNS),
            machine(ended(137), **EVICTED),
            ["lost: Evicted: The node was low on memory."],
        ),
        (
            None,
            machine(WAITS, containerStatuses=[], **UNSCHEDULABLE),
            ["lost: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."],
        ),
        (None, machine(PULLING), ['lost: ImagePullBackOff: Back-off pulling image "a"']),
        (machine(PULLING), machine(PULLING), []),
    ],
)
def test_changes(answers: Answers, before: Data | None, after: Data, expected: list[str]) -> None:
    machines = make_machines("kubernetes", order_of(name="mine"))
    machines.want(1)
    answers.pods = [before] if before else []
    machines.poll()
    answers.pods = [after] if after else []
    assert [str(each) for each in machines.poll()] == [f"machine-0: {text}" for text in expected]
    assert machines.num == (after is not None and "running" in json.dumps(after))


def test_a_machine_that_is_not_wanted_leaves(answers: Answers) -> None:
    machines = make_machines("kubernetes", order_of(name="mine"))
    machines.want(2)
    second = machine(RUNS)
    second["metadata"]["name"] = "mine-machine-1"
    answers.pods = [machine(RUNS), second]
    assert len(machines.poll()) == 2
    machines.want(1)
    answers.pods = [machine(RUNS)]
    assert [str(each) for each in machines.poll()] == ["machine-1: ended"]


def test_an_api_that_does_not_answer_is_reported_once(answers: Answers) -> None:
    machines = make_machines("kubernetes", order_of(name="mine"))
    machines.want(1)
    answers.pods = [machine(RUNS)]
    machines.poll()
    answers.failure = "no cluster answers: refused"
    assert [str(each) for each in machines.poll()] == ["mine: failed: no cluster answers: refused"]
    assert machines.poll() == []
    assert machines.num == 1
    answers.failure = ""
    assert machines.poll() == []


def test_a_number_that_was_not_applied_is_applied_later(answers: Answers) -> None:
    machines = make_machines("kubernetes", order_of(name="mine"))
    machines.want(1)
    answers.failure = "no cluster answers: refused"
    machines.poll()
    answers.failure, answers.commands = "", []
    machines.poll()
    machines.poll()
    assert [words[0] for words in answers.commands] == ["apply", "get", "get"]


def test_the_rest_of_objects_that_were_not_all_applied_is_removed(answers: Answers) -> None:
    machines = make_machines("kubernetes", order_of(name="mine"))
    machines.want(1)
    answers.failure = "kubectl apply: forbidden"
    machines.poll()
    answers.failure, answers.commands = "", []
    machines.close()
    assert [words[0] for words in answers.commands] == ["delete"]


def test_machines_of_another_join_are_not_taken_over(answers: Answers) -> None:
    answers.taken = "statefulset.apps/mine-machine"
    with pytest.raises(UsageError, match=r"machines 'mine' already: .*--option name=NAME, or rem"):
        make_machines("kubernetes", order_of(name="mine"))
    assert [words[0] for words in answers.commands] == ["get"]


def test_objects_that_cannot_be_removed_are_named(answers: Answers) -> None:
    machines = make_machines("kubernetes", order_of(name="mine"))
    machines.close()
    assert "delete" not in [words[0] for words in answers.commands]
    machines.want(1)
    machines.poll()
    answers.failure = "no cluster answers: refused"
    with pytest.raises(UsageError, match=r"'mine' are left: no cluster .*kubectl delete stateful"):
        machines.close()
