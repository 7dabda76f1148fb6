"""Gateways on a cluster: pods, a Service for clients, the network policy, and their Secrets."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from main.cli import main as surreal_like
from session.addons.gateway.client_tokens import write_token
from session.addons.kubernetes.kubectl import Kubectl
from session.addons.kubernetes.kustomize import overlay_files
from session.addons.kubernetes.objects import objects_of
from session.addons.kubernetes.secret import cluster_keys, make_secrets
from session.addons.kubernetes.settings import RUN_PATH, Setting
from session.config.config import apply_overrides
from session.errors import ConfigError
from session.folder import RunFolder
from session.launchers.handle import make_cluster
from session.process.component import Topology
from session.wire.security import write_keys
from surreal_like.experiment.topology import make_topology
from tests.addons.kubernetes.conftest import experiment, setting_of
from tests.addons.kubernetes.test_objects import GATEWAYS, of_kind

GATEWAY = "session_config.gateway"
Data = dict[str, Any]


def made(setting: Setting, kind: str, name: str) -> Data:
    (found,) = [
        each for each in of_kind(objects_of(setting), kind) if each["metadata"]["name"] == name
    ]
    spec: Data = found["spec"]
    return spec


def test_gateways_are_numbered_pods_with_one_port() -> None:
    setting = setting_of(*GATEWAYS, f"{GATEWAY}.port=7300")
    spec = made(setting, "StatefulSet", "cartpole-gateway")
    assert spec["replicas"] == 2
    (container,) = spec["template"]["spec"]["containers"]
    assert container["args"] == ["--name", "gateway-$(POD_INDEX)", "--folder", RUN_PATH]
    assert container["ports"] == [{"name": "clients", "containerPort": 7300}]
    assert "--ready" in container["readinessProbe"]["exec"]["command"]
    # No gateway runs on a node that may vanish, unless the user says so.
    assert "tolerations" not in spec["template"]["spec"]
    (config,) = of_kind(objects_of(setting), "ConfigMap")
    topology = Topology.from_dict(json.loads(config["data"]["topology.json"]))
    assert topology.component("gateway-1").serves == {"clients": 7300}


def test_a_service_leads_clients_to_gateways_that_are_ready() -> None:
    for overrides, kind in (
        ((), "ClusterIP"),
        (("session_config.kubernetes.gateway_service=NodePort",), "NodePort"),
        (("session_config.kubernetes.gateway_service=LoadBalancer",), "LoadBalancer"),
    ):
        setting = setting_of(*GATEWAYS, *overrides)
        # From outside, a gateway must see the address of the client, not that of a node.
        direct = {} if kind == "ClusterIP" else {"externalTrafficPolicy": "Local"}
        service = made(setting, "Service", "cartpole-gateway")
        assert service == {
            "type": kind,
            **direct,
            "sessionAffinity": "ClientIP",
            "selector": setting.selector("gateway"),
            "ports": [{"name": "clients", "port": 7100, "targetPort": 7100}],
        }


def test_the_network_policy_opens_only_the_port_of_gateways() -> None:
    setting = setting_of(*GATEWAYS)
    spec = made(setting, "NetworkPolicy", "cartpole-clients")
    assert spec == {
        "podSelector": {"matchLabels": setting.selector("gateway")},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": 7100}]}],
    }
    closed = made(setting, "NetworkPolicy", "cartpole-run")["ingress"][0]["ports"]
    assert 7100 not in [each["port"] for each in closed]


def test_a_gateway_listens_at_the_address_of_its_pod_for_the_name_of_the_service() -> None:
    gateway = setting_of(*GATEWAYS, f"{GATEWAY}.hosts=[example.org]").session.gateway
    assert gateway.host == "$(POD_IP)"
    assert list(gateway.hosts) == ["example.org", "cartpole-gateway"]


def test_tokens_come_from_a_secret_that_may_come_later() -> None:
    spec = made(setting_of(*GATEWAYS), "StatefulSet", "cartpole-gateway")["template"]["spec"]
    secrets = {each["name"]: each["secret"] for each in spec["volumes"] if "secret" in each}
    assert secrets["keys"]["secretName"] == "cartpole-keys-gateway"
    assert secrets["clients"] == {
        "secretName": "cartpole-keys-clients",
        "optional": True,
        "defaultMode": 0o440,
    }
    mounts = {each["name"]: each for each in spec["containers"][0]["volumeMounts"]}
    folder = RunFolder(Path(RUN_PATH))
    assert mounts["clients"]["mountPath"] == str(folder.client_tokens)
    assert mounts["clients"]["readOnly"]
    agent = made(setting_of(*GATEWAYS), "StatefulSet", "cartpole-agent")["template"]["spec"]
    assert "clients" not in [each["name"] for each in agent["volumes"]]


def test_no_volume_is_mounted_inside_a_volume_that_is_read_only() -> None:
    # The container runtime could not make the folder for it, and the pod would never start.
    objects = objects_of(setting_of(*GATEWAYS))
    sets = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "StatefulSet"]
    for spec in sets:
        mounts = spec["containers"][0]["volumeMounts"]
        closed = [Path(each["mountPath"]) for each in mounts if each.get("readOnly")]
        for each in mounts:
            assert not {*Path(each["mountPath"]).parents} & {*closed}, each
    gateway = made(setting_of(*GATEWAYS), "StatefulSet", "cartpole-gateway")["template"]["spec"]
    keys = [each for each in gateway["containers"][0]["volumeMounts"] if each["name"] == "keys"]
    folder = RunFolder(Path(RUN_PATH)).keys
    assert {each["mountPath"] for each in keys} >= {
        f"{folder}/{name}" for name in ("server.pub", "client.pub", "client.key")
    }
    assert all(each["mountPath"] == f"{folder}/{each['subPath']}" for each in keys)


def test_the_secrets_have_the_digests_of_tokens_and_the_certificate(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    write_keys(keys, cluster_keys())
    token = write_token(keys / "clients", "robot")
    for name in ("tls.crt", "tls.key"):
        (keys / name).write_text(name)
    secrets = {each["metadata"]["name"]: each["data"] for each in make_secrets(keys, "mine", None)}
    assert list(secrets["mine-keys-clients"]) == ["robot"]
    kept = base64.b64decode(secrets["mine-keys-clients"]["robot"])
    assert kept == (keys / "clients" / "robot").read_bytes()
    assert token.encode() not in kept
    assert base64.b64decode(secrets["mine-keys-gateway"]["tls.key"]) == b"tls.key"
    assert "tls.key" not in {**secrets["mine-keys"], **secrets["mine-keys-agent"]}


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What kubectl gets on its standard input; no cluster has any object."""
    found: list[str] = []

    def run(_: Kubectl, *words: str, given: str = "") -> str:
        found.extend([given] if given else [])
        return '{"items": []}' if "--output=json" in words else ""

    monkeypatch.setattr("session.addons.kubernetes.kubectl.find_kubectl", lambda: "kubectl")
    monkeypatch.setattr("session.addons.kubernetes.cluster._PODS_SECONDS", 0.0)
    monkeypatch.setattr(Kubectl, "run", run)
    return found


def test_a_certificate_is_a_file_of_the_secret(tmp_path: Path, applied: list[str]) -> None:
    files = [tmp_path / name for name in ("gateway.crt", "gateway.key")]
    for file in files:
        file.write_text(file.name)
    tls = [
        f"{GATEWAY}.tls.{name}={file}" for name, file in zip(("cert", "key"), files, strict=True)
    ]
    given = [f"{GATEWAY}.num=1", f"{GATEWAY}.tokens=true", *tls]
    given.append("session_config.kubernetes.ttl_seconds=null")
    setting = setting_of(*given)
    paths = [f"{RUN_PATH}/keys/tls.crt", f"{RUN_PATH}/keys/tls.key"]
    assert [setting.session.gateway.tls.cert, setting.session.gateway.tls.key] == paths
    generated = overlay_files(setting, setting_of(), base_path="..")["kustomization.yaml"]
    assert "tls.key=keys/" in generated
    config = apply_overrides(experiment(), given)
    folder = RunFolder(tmp_path / "mine")
    folder.create()
    make_cluster("kubernetes", config, make_topology(config), folder).launch()
    assert base64.b64encode(b"gateway.key").decode() in applied[0]
    # It is there from the start, so that it is removed with the run.
    assert "mine-keys-clients" in applied[0]
    # The config on this machine names the files of this machine.
    assert folder.read_config().session_config.gateway.tls.cert == str(files[0])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((f"{GATEWAY}.tokens=true", f"{GATEWAY}.plaintext=true", f"{GATEWAY}.port=0"), "Service"),
        ((f"{GATEWAY}.tokens=true",), r"gateway\.plaintext to true"),
        ((f"{GATEWAY}.plaintext=true",), r"set gateway\.tokens to true"),
        (
            (f"{GATEWAY}.tokens=true", "session_config.security.insecure=true"),
            "no Secrets",
        ),
    ],
)
def test_a_port_that_strangers_could_use_is_refused(
    overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        setting_of(f"{GATEWAY}.num=1", *overrides)
    assert "\n" not in str(caught.value)


def test_a_new_token_goes_to_the_cluster(
    tmp_path: Path, applied: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(tmp_path / "mine")
    folder.create()
    setting_of(*GATEWAYS).config.dump_file(folder.config)
    write_keys(folder.keys, cluster_keys())
    assert surreal_like(["clients", str(folder.path), "--token", "robot"]) == 0
    assert capsys.readouterr().out.startswith("sg1-")
    assert surreal_like(["clients", str(folder.path), "--revoke", "robot"]) == 0
    assert ["robot: " in text for text in applied] == [True, False]
    assert all("cartpole-keys-clients" in text for text in applied)
