"""The objects of a run: valid for every supported cluster, and right in what no schema knows."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session.addons.kubernetes.kustomize import dump_objects
from session.addons.kubernetes.objects import objects_of
from session.addons.kubernetes.run import KINDS
from session.addons.kubernetes.secret import cluster_keys, make_secrets
from session.addons.kubernetes.settings import (
    INSTANCE,
    RUN_PATH,
    cores,
    make_setting,
    prepare,
    run_name,
    size,
)
from session.config import Config
from session.config.config import apply_overrides
from session.config.file import parse_yaml
from session.errors import ConfigError, UsageError
from session.process.component import Topology
from session.process.heartbeat import starting_seconds
from session.version import VERSION
from session.wire.security import KEY_FILES, write_keys
from surreal_like.addons.kubernetes.experiment_objects import kubernetes_setting, render
from surreal_like.experiment.topology import make_topology
from surreal_like.run.request import RunRequest
from tests.addons.kubernetes.conftest import ROOT, experiment, setting_of
from tests.addons.kubernetes.schemas import InvalidError, validate
from tests.docs.examples import blocks

pytestmark = pytest.mark.usefixtures("quick")
OLDEST, NEWEST = "1.28", "1.37"
# One with every branch: shards, spot nodes, a graphics processor, a namespace, no default class.
FULL = (
    "learner_config.replay.replay_shards=3",
    "session_config.kubernetes.prefer_spot=true",
    "session_config.kubernetes.node_selector={pool: cheap, spot: true}",
    "session_config.kubernetes.namespace=science",
    "session_config.kubernetes.storage_class=fast",
    "session_config.resources.learner={cpu: 2.5, memory_bytes: 3_000_000_000, gpu: 1}",
    "session_config.agent.num=5",
    "session_config.kubernetes.pods.all={imagePullSecrets: [{name: registry}], env: {A: 1}}",
    "session_config.kubernetes.pods.learner={nodeSelector: {pool: gpu}, priorityClassName: high, "
    "tolerations: [{key: gpu, operator: Exists}], annotations: {kept: true}, env: {B: text}}",
    "session_config.kubernetes.pods.agent={serviceAccountName: agents, env: {A: 2}, "
    "topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, "
    "whenUnsatisfiable: ScheduleAnyway}]}",
)
_LONG = {"hpa": "horizontalpodautoscaler", "pdb": "poddisruptionbudget"}
GATEWAYS = (
    "session_config.gateway.num=2",
    "session_config.gateway.tokens=true",
    "session_config.gateway.plaintext=true",
)
METRICS = (
    "session_config.tensorplex.prometheus_port=9100",
    "session_config.kubernetes.metrics_from=[monitoring, 2nd-team]",
)
LABELS = (
    "session_config.kubernetes.labels={team.example.org/name: robots, costs: 17}",
    "session_config.kubernetes.annotations={example.org/reason: 'any text, of any kind'}",
    "session_config.kubernetes.pods.all={labels: {tier: low, size: s}}",
    "session_config.kubernetes.pods.agent={labels: {size: m}, annotations: {a: true}}",
)
EXPERIMENTS = {
    "plain": (),
    "full": FULL,
    "gateways": GATEWAYS,
    "insecure": ("session_config.security.insecure=true",),
    "scraped": METRICS,
    "labelled": (*LABELS, *METRICS),
    "queued": ("session_config.kubernetes.labels={kueue.x-k8s.io/queue-name: robots}",),
    "balanced": (*GATEWAYS, "session_config.kubernetes.gateway_service=LoadBalancer"),
    "unbounded": (
        "session_config.kubernetes.scratch_bytes=0",
        "session_config.kubernetes.network_policy=false",
    ),
}
Data = dict[str, Any]


@pytest.fixture(params=EXPERIMENTS)
def objects(request: pytest.FixtureRequest) -> list[Data]:
    return objects_of(setting_of(*EXPERIMENTS[request.param]))


def of_kind(objects: list[Data], kind: str) -> list[Data]:
    return [each for each in objects if each["kind"] == kind]


def templates(objects: list[Data]) -> Iterator[tuple[Data, Data]]:
    """Each object that makes pods, and the template of these."""
    for each in objects:
        if "template" in each.get("spec", {}):
            yield each, each["spec"]["template"]


def containers(objects: list[Data]) -> Iterator[tuple[Data, Data]]:
    """Each pod's spec, and each of its containers."""
    for _, template in templates(objects):
        for container in template["spec"]["containers"]:
            yield template["spec"], container


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_valid(objects: list[Data], version: str) -> None:
    for each in objects:
        validate(each, version)


def test_each_policy_has_replay_servers_of_its_own() -> None:
    shards = "policies.left.learner_config.replay.replay_shards=2"
    request = RunRequest("configs/multi_cartpole_ppo.yaml", overrides=[shards])
    setting = kubernetes_setting(request.resolve().config, "two")
    objects = objects_of(setting)
    for each in objects:
        validate(each, OLDEST)
    sets = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "StatefulSet")}
    replays = {name: spec for name, spec in sets.items() if "replay" in name}
    assert {name: spec["replicas"] for name, spec in replays.items()} == {
        "two-replay-left": 2,
        "two-replay-right": 1,
    }
    for name, spec in replays.items():
        [container] = spec["template"]["spec"]["containers"]
        assert f"{name.removeprefix('two-')}-$(POD_INDEX)" in container["args"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert len(of_kind(objects, "Job")) == 1
    budgets = [each["metadata"]["name"] for each in of_kind(objects, "PodDisruptionBudget")]
    assert budgets == ["two-replay-left"]
    services = {each["metadata"]["name"] for each in of_kind(objects, "Service")}
    assert {"two-replay-left-0", "two-replay-left-1", "two-replay-right-0"} <= services


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_secret_is_valid(tmp_path: Path, version: str) -> None:
    write_keys(tmp_path / "keys", cluster_keys())
    secrets = make_secrets(tmp_path / "keys", "cartpole", None)
    for secret in secrets:
        validate(secret, version)
    files = {each["metadata"]["name"]: sorted(each["data"]) for each in secrets}
    assert files == {
        "cartpole-keys": sorted((*KEY_FILES, "agent.pub", "evaluator.pub", "gateway.pub")),
        "cartpole-keys-agent": ["client.key", "client.pub", "server.pub"],
        "cartpole-keys-evaluator": ["client.key", "client.pub", "server.pub"],
        "cartpole-keys-gateway": ["client.key", "client.pub", "server.pub"],
    }


def test_only_servers_can_pass_for_one() -> None:
    mounted = {
        template["metadata"]["labels"]["app.kubernetes.io/component"]: volume["secret"][
            "secretName"
        ].partition("keys")[2]
        for _, template in templates(objects_of(setting_of()))
        for volume in template["spec"]["volumes"]
        if "secret" in volume
    }
    assert mounted.pop("agent") == "-agent"
    assert mounted.pop("eval") == "-evaluator"
    assert set(mounted.values()) == {""}


def test_a_strict_schema_sees_what_is_wrong() -> None:
    objects = objects_of(setting_of())
    objects[-1]["spec"]["backoffLimits"] = 3
    with pytest.raises(InvalidError):
        validate(objects[-1], NEWEST)


def test_objects_come_from_nothing_but_topology_and_config() -> None:
    setting = setting_of()
    before = setting.config.to_dict()
    again = objects_of(make_setting(setting.config, setting.topology, {}))
    assert again == objects_of(setting)
    assert setting.config.to_dict() == before


def test_yaml_gives_the_same_objects(objects: list[Data]) -> None:
    texts = dump_objects(objects).split("---\n")
    assert [parse_yaml(text, "rendered") for text in texts] == objects


def test_selectors_find_the_pods_of_their_own_part_only(objects: list[Data]) -> None:
    for owner, _ in templates(objects):
        if owner["kind"] == "Job":
            continue
        wanted = owner["spec"]["selector"]["matchLabels"].items()
        found = [
            other["metadata"]["name"]
            for other, pods in templates(objects)
            if wanted <= pods["metadata"]["labels"].items()
        ]
        assert found == [owner["metadata"]["name"]]


def test_selectors_do_not_find_another_run() -> None:
    mine, other = objects_of(setting_of()), objects_of(setting_of(name="other"))
    labels = [template["metadata"]["labels"].items() for _, template in templates(other)]
    for each in (*of_kind(mine, "Service"), *of_kind(mine, "StatefulSet")):
        selector = each["spec"]["selector"]
        wanted = selector.get("matchLabels", selector).items()
        assert not [found for found in labels if wanted <= found]


def pod_names(owner: Data) -> list[str]:
    numbers = range(owner["spec"].get("replicas", 1))
    return [f"{owner['metadata']['name']}-{number}" for number in numbers]


def test_each_service_leads_to_a_port_that_is_bound(objects: list[Data]) -> None:
    for service in of_kind(objects, "Service"):
        spec = service["spec"]
        wanted = dict(spec["selector"])
        name = wanted.pop("statefulset.kubernetes.io/pod-name", None)
        behind = [
            template["spec"]["containers"][0]
            for owner, template in templates(objects)
            if wanted.items() <= template["metadata"]["labels"].items()
            and (name is None or name in pod_names(owner))
        ]
        assert behind
        for port in spec.get("ports", []):
            (container,) = behind
            assert {"name": port["name"], "containerPort": port["targetPort"]} in container["ports"]


def test_each_address_is_a_service_and_its_port(objects: list[Data]) -> None:
    (config,) = of_kind(objects, "ConfigMap")
    opened = {
        (service["metadata"]["name"], port["name"]): port["port"]
        for service in of_kind(objects, "Service")
        for port in service["spec"].get("ports", [])
    }
    for endpoint, address in json.loads(config["data"]["addresses.json"]).items():
        host, _, port = address["connect"].removeprefix("tcp://").partition(":")
        assert opened[host, endpoint.partition(".")[2]] == int(port)
        assert address["bind"] == f"tcp://$(POD_IP):{port}"


def test_a_pod_finds_itself_in_a_file_whose_size_does_not_grow_with_the_agents() -> None:
    few, many = (
        of_kind(objects_of(setting_of(f"session_config.agent.num={number}")), "ConfigMap")[0][
            "data"
        ]
        for number in (2, 500)
    )
    assert few["topology.json"] == many["topology.json"]
    topology = Topology.from_dict(json.loads(many["topology.json"]))
    for name in ("learner", "replay-0", "agent-0", "agent-499", "eval-1"):
        assert (
            topology.component(name)
            == make_topology(
                setting_of("session_config.agent.num=500", "session_config.evaluator.num=2").config
            )[name]
        )


def test_names_are_short_enough_for_what_is_made_of_them() -> None:
    longest = "a" * 40
    for each in objects_of(setting_of(*FULL, name=longest)):
        name = each["metadata"]["name"]
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
        # A StatefulSet's pods bear its name and a hash in a label.
        room = {"StatefulSet": 11, "Deployment": 11, "Job": 6}.get(each["kind"], 0)
        assert len(name) + room <= 63
        for port in each["spec"].get("ports", []) if each["kind"] == "Service" else []:
            assert len(port["name"]) <= 15
    for _, container in containers(objects_of(setting_of(name=longest))):
        assert all(len(port["name"]) <= 15 for port in container.get("ports", []))


def test_what_is_mounted_exists(objects: list[Data]) -> None:
    (config,) = of_kind(objects, "ConfigMap")
    claims = {each["metadata"]["name"] for each in of_kind(objects, "PersistentVolumeClaim")}
    for spec, container in containers(objects):
        volumes = {each["name"]: each for each in spec["volumes"]}
        for mount in container["volumeMounts"]:
            volume = volumes[mount["name"]]
            if "configMap" in volume:
                assert volume["configMap"]["name"] == config["metadata"]["name"]
                assert mount["subPath"] in config["data"]
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims


def test_every_volume_is_mounted_by_one_pod_at_a_time(objects: list[Data]) -> None:
    used = [
        volume["persistentVolumeClaim"]["claimName"]
        for owner, template in templates(objects)
        for volume in template["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    assert sorted(used) == sorted(
        each["metadata"]["name"] for each in of_kind(objects, "PersistentVolumeClaim")
    )
    for owner in of_kind(objects, "Deployment"):
        assert owner["spec"]["strategy"] == {"type": "Recreate"}


def test_no_container_is_root_or_writes_outside_its_volumes(objects: list[Data]) -> None:
    for spec, container in containers(objects):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}
        assert "cpu" not in container["resources"]["limits"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] > 0
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}
        assert writable == {RUN_PATH, "/tmp"}
        assert spec["automountServiceAccountToken"] is False


def test_the_role_of_the_page_allows_what_the_commands_do(objects: list[Data]) -> None:
    page = blocks(ROOT / "docs" / "kubernetes.md")
    (role,) = [parse_yaml(each.text, "page") for each in page if "kind: Role\n" in each.text]
    allowed = {
        (group, name): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }
    applied = {(each["apiVersion"].rpartition("/")[0], each["kind"]) for each in objects}
    for group, kind in {*applied, ("", "Secret")}:
        name = re.sub("ys$", "ies", f"{kind.lower()}s")
        assert {"get", "create", "patch"} <= allowed[group, name], kind
    for kind in KINDS:
        name = re.sub("ys$", "ies", f"{_LONG.get(kind, kind)}s")
        verbs = [found for (_, each), found in allowed.items() if each == name]
        assert any({"get", "list", "patch", "delete"} <= each for each in verbs), kind
    assert {"get", "list", "delete"} <= allowed["", "pods"]
    assert "create" in allowed["", "pods/exec"] & allowed["", "pods/portforward"]
    assert "get" in allowed["", "pods/log"]
    assert "patch" in allowed["apps", "statefulsets/scale"]


def test_variables_in_arguments_are_set(objects: list[Data]) -> None:
    for _, container in containers(objects):
        text = " ".join([*container["command"], *container["args"]])
        known = {each["name"] for each in container["env"]}
        assert set(re.findall(r"\$\((\w+)\)", text)) <= known
        assert "POD_IP" in known


def test_the_time_for_a_clean_end_fits(objects: list[Data]) -> None:
    grace_seconds = setting_of().session.launcher.grace_seconds
    for _, template in templates(objects):
        assert template["spec"]["terminationGracePeriodSeconds"] > grace_seconds


def test_a_container_that_a_signal_ends_is_started_again(objects: list[Data]) -> None:
    rules = {
        (each["kind"], each["spec"]["template"]["spec"].get("restartPolicy", "Always"))
        for each in objects
        if "template" in each.get("spec", {})
    }
    # Always: also after 0. OnFailure: after 75; 0 means that the run is over.
    assert rules == {("Deployment", "Always"), ("StatefulSet", "Always"), ("Job", "OnFailure")}


def test_probes_allow_for_a_slow_start(objects: list[Data]) -> None:
    longest = starting_seconds(setting_of().session.heartbeat.timeout)
    for _, container in containers(objects):
        startup = container["startupProbe"]
        assert startup["failureThreshold"] * startup["periodSeconds"] >= longest
        assert container["livenessProbe"]["exec"]["command"][:3] == [
            "surreal-like",
            "probe",
            RUN_PATH,
        ]
        assert "--ready" in container["readinessProbe"]["exec"]["command"]


def test_each_kind_of_component_becomes_what_it_should() -> None:
    objects = objects_of(setting_of())
    kinds = {each["metadata"]["name"]: each["kind"] for each, _ in templates(objects)}
    assert kinds == {
        "cartpole-learner": "Job",
        "cartpole-replay": "StatefulSet",
        "cartpole-agent": "StatefulSet",
        "cartpole-eval": "StatefulSet",
        "cartpole-ps": "Deployment",
        "cartpole-tensorplex": "Deployment",
        "cartpole-loggerplex": "Deployment",
    }
    (job,) = of_kind(objects, "Job")
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert job["spec"]["backoffLimit"] >= 100
    tensorplex = {o["metadata"]["name"]: t for o, t in templates(objects)}["cartpole-tensorplex"]
    names = [container["name"] for container in tensorplex["spec"]["containers"]]
    assert names == ["tensorplex", "tensorboard"]


def test_agents_are_elastic() -> None:
    by_name = {each["metadata"]["name"]: each for each in objects_of(setting_of(*FULL))}
    del by_name["cartpole-replay"]  # the budget has its name too
    agents = by_name["cartpole-agent"]["spec"]
    assert agents["replicas"] == 5
    assert agents["podManagementPolicy"] == "Parallel"
    spec = agents["template"]["spec"]
    assert not [each for each in spec["volumes"] if "persistentVolumeClaim" in each]
    (container,) = spec["containers"]
    assert container["args"] == ["--name", "agent-$(POD_INDEX)", "--folder", RUN_PATH]
    assert spec["nodeSelector"] == {"pool": "cheap", "spot": "true"}
    assert {each["key"] for each in spec["tolerations"]} >= {"spot", "cloud.google.com/gke-spot"}


def test_a_budget_only_where_there_are_several_shards() -> None:
    assert not of_kind(objects_of(setting_of()), "PodDisruptionBudget")
    (budget,) = of_kind(objects_of(setting_of(*FULL)), "PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] == "replay"


def test_resources_come_from_the_config() -> None:
    found = {c["name"]: c["resources"] for _, c in containers(objects_of(setting_of(*FULL)))}
    assert found["learner"] == {
        "requests": {
            "cpu": "2500m",
            "memory": "3000000000",
            "nvidia.com/gpu": "1",
            "ephemeral-storage": "512Mi",
        },
        "limits": {"memory": "3000000000", "nvidia.com/gpu": "1"},
    }
    assert found["agent"] == {
        "requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "512Mi"},
        "limits": {"memory": "1Gi"},
    }


def pods_of(objects: list[Data], part: str) -> Data:
    """The template of the pods of one part."""
    (found,) = (t for o, t in templates(objects) if o["metadata"]["name"] == f"cartpole-{part}")
    return found


def test_each_role_has_the_fields_that_were_asked_for() -> None:
    objects = objects_of(setting_of(*FULL))
    learner, agent, ps = (pods_of(objects, part) for part in ("learner", "agent", "ps"))
    assert learner["metadata"]["annotations"] == {"kept": "true"}
    spec = learner["spec"]
    assert (spec["nodeSelector"], spec["priorityClassName"]) == ({"pool": "gpu"}, "high")
    # The learner asks for a graphics processor, so it tolerates the taint of such nodes.
    assert [each["key"] for each in spec["tolerations"]] == ["nvidia.com/gpu", "gpu"]
    assert agent["spec"]["serviceAccountName"] == "agents"
    (spread,) = agent["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"].items() <= agent["metadata"]["labels"].items()
    assert all(
        t["spec"]["imagePullSecrets"] == [{"name": "registry"}] for _, t in templates(objects)
    )
    assert "tolerations" not in ps["spec"]
    assert "annotations" not in ps["metadata"]


def test_variables_of_a_role_go_before_those_of_all() -> None:
    objects = objects_of(
        setting_of(*FULL, "session_config.kubernetes.pods.ps={env: {OMP_NUM_THREADS: 4}}")
    )
    values = {
        part: {
            each["name"]: each.get("value")
            for each in pods_of(objects, part)["spec"]["containers"][0]["env"]
        }
        for part in ("learner", "agent", "ps")
    }
    assert (values["learner"]["A"], values["learner"]["B"]) == ("1", "text")
    assert values["agent"]["A"] == "2"
    assert "B" not in values["agent"]
    assert values["ps"]["OMP_NUM_THREADS"] == "4"
    for _, container in containers(objects):
        names = [each["name"] for each in container["env"]]
        assert len(names) == len(set(names))


def test_a_variable_may_come_from_elsewhere() -> None:
    source = {"secretKeyRef": {"name": "wandb", "key": "token"}}
    pods = json.dumps({"learner": {"env": {"TOKEN": {"valueFrom": source}}}})
    objects = objects_of(setting_of(f"session_config.kubernetes.pods={pods}"))
    (container,) = pods_of(objects, "learner")["spec"]["containers"]
    assert {"name": "TOKEN", "valueFrom": source} in container["env"]
    for each in objects:
        validate(each, NEWEST)


@pytest.mark.parametrize(
    ("pods", "message"),
    [
        ("{lerner: {}}", "no role 'lerner'.*did you mean learner"),
        ("{agent: {toleration: []}}", "no field 'toleration'.*did you mean tolerations"),
        ("{agent: {tolerations: {key: a}}}", r"agent\.tolerations is .*expected a list"),
        ("{agent: [1]}", r"pods\.agent is \[1\], expected a mapping"),
        ("{all: {env: {POD_IP: 1}}}", r"all\.env\.POD_IP is set by the run itself"),
    ],
)
def test_wrong_fields_of_pods_are_one_line(pods: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        setting_of(f"session_config.kubernetes.pods={pods}")
    assert "\n" not in str(caught.value)


def test_only_the_runs_own_pods_reach_its_ports() -> None:
    objects = objects_of(setting_of(*FULL))
    (policy,) = of_kind(objects, "NetworkPolicy")
    spec = policy["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    (allowed,) = spec["ingress"]
    (source,) = allowed["from"]
    for _, template in templates(objects):
        labels = template["metadata"]["labels"].items()
        assert spec["podSelector"]["matchLabels"].items() <= labels
        assert source["podSelector"]["matchLabels"].items() <= labels
    opened = {p["containerPort"] for _, c in containers(objects) for p in c.get("ports", [])}
    assert {each["port"] for each in allowed["ports"]} == opened


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_policy_of_the_page_lets_pods_reach_their_run_and_dns(version: str) -> None:
    page = blocks(ROOT / "docs" / "kubernetes.md")
    (text,) = [each.text for each in page if "kind: NetworkPolicy\n" in each.text]
    policy = parse_yaml(text, "page")
    validate(policy, version)
    spec = policy["spec"]
    assert spec["policyTypes"] == ["Egress"]
    own, names = spec["egress"]
    # `stop` removes what has the label of the run.
    assert "labels" not in policy["metadata"]
    objects = objects_of(setting_of(*GATEWAYS, *METRICS, name="mine"))
    policies = {each["metadata"]["name"]: each for each in of_kind(objects, "NetworkPolicy")}
    admitted = policies["mine-run"]["spec"]
    assert spec["podSelector"] == admitted["podSelector"]
    assert own == {"to": admitted["ingress"][0]["from"]}
    (dns,) = names["to"]
    assert dns.keys() == {"namespaceSelector", "podSelector"}
    assert {(each["protocol"], each["port"]) for each in names["ports"]} == {
        ("UDP", 53),
        ("TCP", 53),
    }


def test_no_folder_of_a_node_grows_without_limit() -> None:
    limits = {}
    for owner, template in templates(objects_of(setting_of())):
        for volume in template["spec"]["volumes"]:
            if "emptyDir" in volume:
                limits[owner["metadata"]["name"], volume["name"]] = volume["emptyDir"]["sizeLimit"]
    assert limits["cartpole-agent", "run"] == limits["cartpole-agent", "tmp"] == "512Mi"
    # A shard may save its rows, which are at most as many as its memory holds.
    assert limits["cartpole-replay", "run"] == "4608Mi"


def test_every_object_says_what_made_it(objects: list[Data]) -> None:
    for each in objects:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "surreal-like"
        assert labels["app.kubernetes.io/version"] == VERSION
    # A new version of ours would replace the pods if their template named it.
    for _, template in templates(objects):
        assert "app.kubernetes.io/version" not in template["metadata"]["labels"]


def test_a_run_is_not_reachable_from_outside_the_cluster(objects: list[Data]) -> None:
    for service in of_kind(objects, "Service"):
        if service["metadata"]["name"] != "cartpole-gateway":
            assert service["spec"].get("type", "ClusterIP") == "ClusterIP"
    assert "Ingress" not in {each["kind"] for each in objects}


def spread_of(*overrides: str) -> Any:
    (owner,) = (
        each
        for each in of_kind(objects_of(setting_of(*overrides)), "StatefulSet")
        if each["metadata"]["name"] == "cartpole-replay"
    )
    return owner["spec"]["template"]["spec"].get("topologySpreadConstraints")


def test_shards_prefer_nodes_of_their_own() -> None:
    several = "learner_config.replay.replay_shards=2"
    assert spread_of() is None
    (rule,) = spread_of(several)
    assert rule["whenUnsatisfiable"] == "ScheduleAnyway"
    assert rule["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "replay"
    pods = "session_config.kubernetes.pods.replay={topologySpreadConstraints: []}"
    assert spread_of(several, pods) is None


def test_labels_and_annotations_are_on_every_object_and_pod() -> None:
    objects = objects_of(setting_of(*LABELS))
    metadata = [each["metadata"] for each in objects]
    metadata += [template["metadata"] for _, template in templates(objects)]
    assert len(metadata) > len(objects)
    for each in metadata:
        found = each["labels"]
        assert (found["team.example.org/name"], found["costs"]) == ("robots", "17")
        assert each["annotations"]["example.org/reason"] == "any text, of any kind"
    pods = {
        owner["metadata"]["name"]: template["metadata"] for owner, template in templates(objects)
    }
    sizes = {name: (pod["labels"]["tier"], pod["labels"]["size"]) for name, pod in pods.items()}
    assert sizes.pop("cartpole-agent") == ("low", "m")
    assert set(sizes.values()) == {("low", "s")}
    assert pods["cartpole-agent"]["annotations"]["a"] == "true"
    # Selectors are those of a run without them, and still find its own pods alone.
    for each in objects:
        assert "costs" not in json.dumps(each["spec"].get("selector", {}) if "spec" in each else {})


def test_secrets_have_the_labels_of_all_objects(tmp_path: Path) -> None:
    write_keys(tmp_path / "keys", cluster_keys())
    added = {"labels": {"team": "robots", INSTANCE: "other"}, "annotations": {"a": "b"}}
    for secret in make_secrets(tmp_path / "keys", "cartpole", None, added):
        assert secret["metadata"]["labels"] == {"team": "robots", INSTANCE: "cartpole"}
        assert secret["metadata"]["annotations"] == {"a": "b"}
        validate(secret, NEWEST)


@functools.cache
def label_keys() -> list[str]:
    """Return every key of a label, or of a selector of labels, in a run with every branch."""
    found: set[str] = set()

    def walk(value: Any) -> None:
        for name, each in value.items() if isinstance(value, dict) else ():
            if name in ("labels", "matchLabels", "selector") and isinstance(each, dict):
                found.update(key for key, text in each.items() if isinstance(text, str))
            walk(each)
        for each in value if isinstance(value, list) else ():
            walk(each)

    for overrides in EXPERIMENTS.values():
        if "labels" not in str(overrides):
            walk(objects_of(setting_of(*overrides)))
    return sorted(found)


LABELLED_PLACES = ("labels", "pods.all.labels", "pods.learner.labels")


@pytest.mark.parametrize("place", LABELLED_PLACES)
def test_a_label_that_the_run_sets_is_refused(place: str) -> None:
    keys = label_keys()
    assert {INSTANCE, "statefulset.kubernetes.io/pod-name"} < set(keys)
    config = experiment()
    for key in keys:
        override = f"session_config.kubernetes.{place}={{{key}: mine}}"
        with pytest.raises(ConfigError, match=f"{place} has '{key}', which the run itself sets"):
            prepare(apply_overrides(config, [override]), "cartpole")


WRONG_LABELS = [
    ("{'two words': x}", "use letters, digits"),
    ("{/x: y}", "a domain name"),
    ("{a: 'two words'}", "'two words' is no value of a label"),
    (f"{{a: {'x' * 64}}}", "at most 63 characters"),
    ("{a: [1]}", "is no value of a label"),
]


@pytest.mark.parametrize("place", LABELLED_PLACES)
def test_a_label_that_no_object_can_have_is_refused(place: str) -> None:
    config = experiment()
    for given, message in WRONG_LABELS:
        override = f"session_config.kubernetes.{place}={given}"
        with pytest.raises(ConfigError, match=f"{place} has .*{message}") as caught:
            prepare(apply_overrides(config, [override]), "cartpole")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["annotations", "pods.all.annotations"])
def test_an_annotation_that_no_object_can_have_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match=f"{place} has 'a b': use letters"):
        setting_of(f"session_config.kubernetes.{place}={{a b: c}}")


def test_metrics_are_for_the_namespaces_that_are_named() -> None:
    objects = objects_of(setting_of(*METRICS))
    policies = {
        each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "NetworkPolicy")
    }
    (allowed,) = policies["cartpole-metrics"]["ingress"]
    assert allowed["ports"] == [{"protocol": "TCP", "port": 9100}]
    (source,) = allowed["from"]
    (named,) = source["namespaceSelector"]["matchExpressions"]
    assert (named["key"], named["values"]) == (
        "kubernetes.io/metadata.name",
        ["monitoring", "2nd-team"],
    )
    assert 9100 not in {each["port"] for each in policies["cartpole-run"]["ingress"][0]["ports"]}
    chosen = policies["cartpole-metrics"]["podSelector"]["matchLabels"].items()
    pods = {
        owner["metadata"]["name"]: template["metadata"]
        for owner, template in templates(objects)
        if chosen <= template["metadata"]["labels"].items()
    }
    assert {name: pod["annotations"] for name, pod in pods.items()} == {
        "cartpole-tensorplex": {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": "9100",
            "prometheus.io/path": "/metrics",
        }
    }
    opened = {
        container["name"]
        for _, container in containers(objects)
        if {"name": "metrics", "containerPort": 9100} in container.get("ports", [])
    }
    assert opened == {"tensorplex"}
    (service,) = (
        each
        for each in of_kind(objects, "Service")
        if each["metadata"]["name"] == "cartpole-tensorplex"
    )
    assert {"name": "metrics", "port": 9100, "targetPort": 9100} in service["spec"]["ports"]


def test_metrics_stay_in_their_pod_unless_namespaces_are_named() -> None:
    assert "9100" not in json.dumps(objects_of(setting_of(METRICS[0]))[1:])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((METRICS[1],), "prometheus_port is 0: set a port"),
        ((METRICS[1], "session_config.tensorplex.prometheus_port=7001"), "7001: set a port"),
        ((*METRICS, "session_config.kubernetes.network_policy=false"), "every pod of the cluster"),
        ((METRICS[0], "session_config.kubernetes.metrics_from=[A_b]"), "names of namespaces"),
        ((METRICS[0], "session_config.kubernetes.metrics_from=[1]"), "names of namespaces"),
    ],
)
def test_metrics_that_any_pod_could_read_are_refused(
    overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        setting_of(*overrides)
    assert "\n" not in str(caught.value)


def test_without_keys_only_where_that_was_said() -> None:
    for overrides, expected in (((), True), (EXPERIMENTS["insecure"], False)):
        for spec, container in containers(objects_of(setting_of(*overrides))):
            secrets = [each for each in spec["volumes"] if "secret" in each]
            assert bool(secrets) is expected
            assert any(m["name"] == "keys" for m in container["volumeMounts"]) is expected
            # Kubelet gives the files to root and our group.
            assert all(each["secret"]["defaultMode"] == 0o440 for each in secrets)


def test_a_run_on_a_cluster_does_not_exit() -> None:
    session = setting_of().session
    assert session.at_end == "idle"
    assert setting_of().config["run"] == {"launcher": "kubernetes"}


def test_what_is_learned_is_the_same_as_on_one_machine() -> None:
    setting = setting_of()
    config = Config(parse_yaml(objects_of(setting)[0]["data"]["config.yaml"], "config"))
    assert config == setting.config
    assert config.fingerprint() == config["recorded"]["fingerprint"]


def test_a_users_own_file_travels_in_the_config_map(tmp_path: Path) -> None:
    plain = setting_of()
    code = {"mine.py": "x = 1\n"}
    setting = make_setting(plain.config, plain.topology, code)
    objects = objects_of(setting)
    assert objects[0]["data"]["mine.py"] == "x = 1\n"
    for _, container in containers(objects):
        assert {
            "name": "config",
            "mountPath": f"{RUN_PATH}/code/mine.py",
            "subPath": "mine.py",
            "readOnly": True,
        } in container["volumeMounts"]
    assert "x = 1" in render(setting)


def test_a_large_file_of_a_user_is_refused() -> None:
    plain = setting_of()
    with pytest.raises(UsageError, match=r"mine\.py.*build it into the image"):
        make_setting(plain.config, plain.topology, {"mine.py": "#" * (512 * 1024 + 1)})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cartpole_dqn", "cartpole-dqn"),
        ("Atari/Pong v5", "atari-pong-v5"),
        ("64-agents", "agents"),
        ("", "run"),
        ("a" * 90, "a" * 40),
        ("a" * 39 + "-b", "a" * 39),
    ],
)
def test_names_are_made_of_experiments(text: str, name: str) -> None:
    assert run_name(text) == name


@pytest.mark.parametrize("name", ["Big", "-a", "a-", "9a", "a.b", "a" * 41])
def test_a_name_that_no_object_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"session_config\.kubernetes\.name"):
        setting_of(f"session_config.kubernetes.name={name}")


def test_a_prepared_config_is_a_copy() -> None:
    config = setting_of().config
    before = config.to_dict()
    prepare(config, "other")
    assert config.to_dict() == before


def test_quantities() -> None:
    assert [cores(number) for number in (1.0, 0.5, 2.25, 64)] == ["1", "500m", "2250m", "64"]
    assert [size(number) for number in (1 << 30, 3 << 20, 1000, 0)] == ["1Gi", "3Mi", "1000", "0"]
    assert math.isclose(2.25, int(cores(2.25)[:-1]) / 1000)


def test_every_object_belongs_to_the_run(objects: list[Data]) -> None:
    for each in objects:
        assert each["metadata"]["labels"][INSTANCE] == "cartpole"
        assert each["metadata"]["name"].startswith("cartpole-")
