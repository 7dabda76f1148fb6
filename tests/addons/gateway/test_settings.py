"""Settings of gateways that are refused before anything is started, in one line each."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from session.config import Config
from session.errors import ConfigError, MissingExtra, UsageError
from surreal_like.addons.gateway import settings
from surreal_like.addons.gateway.settings import check_gateway, remote_specs
from surreal_like.experiment.machine import check_ports
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.experiment.topology import make_topology
from surreal_like.replay.replay import Replay
from surreal_like.run.start import SerialStarter
from tests.add_ons import needs

CERTIFICATE = Path(__file__).with_name("certificate.pem")
REMOTE: dict[str, Any] = {
    "env_config.env_name": "remote",
    "env_config.obs_spec": {"type": "float32", "dim": [4]},
    "env_config.action_spec": {"type": "discrete", "dim": [2]},
    "session_config.agent.num": 0,
    "session_config.evaluator.num": 0,
    "session_config.gateway.num": 1,
}


def experiment(changes: dict[str, Any], algorithm: str = "dqn") -> Config:
    words = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
    return resolve(read_experiment(None, words, algorithm=algorithm, env_name="toy:bandit"))


def remote(**changes: Any) -> Config:
    return experiment({**REMOTE, **changes})


def test_a_gateway_is_a_component_with_torch() -> None:
    topology = make_topology(experiment({"session_config.gateway.num": 2}))
    first, second = topology.of_kind("gateway")
    assert (first.name, second.name, second.index) == ("gateway-0", "gateway-1", 1)
    assert first.needs_torch
    assert [dict(first.serves), dict(second.serves)] == [{"clients": 7100}, {"clients": 7101}]
    assert {*first.connects} == {*topology["agent-0"].connects, "learner.control"}
    assert first.metric_id == "gateway/0"


def test_the_specs_of_a_remote_environment_stand_in_the_file() -> None:
    config = remote()
    assert config.env_config.obs_spec == REMOTE["env_config.obs_spec"]
    assert [each.name for each in make_topology(config).of_kind("gateway")] == ["gateway-0"]


@needs("gradients")
def test_the_gradients_of_clients_alone_are_those_of_the_algorithm() -> None:
    config = experiment(REMOTE, "a3c")
    assert "extras/gradient" in config.learner_config.gradient_columns


@pytest.mark.parametrize(
    "algorithm", [pytest.param("a3c", marks=needs("gradients")), "impala", "ppo", "dqn"]
)
@pytest.mark.parametrize("width", [1, 4])
def test_with_remote_environments_only_the_width_of_sessions_can_be_meant(
    algorithm: str, width: int
) -> None:
    config = experiment({**REMOTE, "session_config.gateway.num_envs": width}, algorithm)
    assert config.env_config.num_envs == width


@needs("gradients")
def test_another_width_than_that_of_sessions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set both to the same number"):
        experiment({**REMOTE, "env_config.num_envs": 8}, "a3c")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("env_config.obs_spec", {}, "env_config.obs_spec is empty"),
        ("env_config.action_spec", {}, "env_config.action_spec is empty"),
        ("env_config.obs_spec", {"type": "float32"}, "env_config.obs_spec.dim"),
        ("env_config.action_spec", {"type": "x", "dim": [2]}, "env_config.action_spec"),
        ("env_config.frame_stack", 3, "puts an axis of 3 in front"),
        ("session_config.agent.num", 1, "session_config.agent.num is 1"),
        ("session_config.evaluator.num", 1, "session_config.evaluator.num is 1"),
    ],
)
def test_each_wrong_setting_of_a_remote_environment_is_one_line(
    key: str, value: Any, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        remote(**{key: value})
    assert "\n" not in str(caught.value)


def test_a_remote_environment_needs_a_gateway() -> None:
    config = remote()
    config.session_config.gateway.num = 0
    with pytest.raises(ConfigError, match=r"session_config\.gateway\.num is 0"):
        remote_specs(config, config)


def test_without_agents_and_gateways_nothing_steps_the_environment() -> None:
    with pytest.raises(ConfigError, match=r"session_config\.gateway\.num for clients"):
        experiment({"session_config.agent.num": 0})


def test_synchronous_agents_are_refused() -> None:
    changes = {
        "learner_config.algo.synchronous": True,
        "session_config.gateway.num": 1,
    }
    with pytest.raises(ConfigError, match="a batch might never fill"):
        experiment(changes, "ppo")


def test_unrolls_have_one_width() -> None:
    with pytest.raises(ConfigError, match=r"gateway\.num_envs is 1, but env_config\.num_envs is 8"):
        experiment({"session_config.gateway.num": 1}, "impala")


def test_clients_send_no_info() -> None:
    config = remote()
    config.env_config.info_keys = ["clock"]
    with pytest.raises(ConfigError, match=r"info_keys is \['clock'\]"):
        check_gateway(config, Replay, synchronous=False, here=True)


def test_a_page_needs_its_extra_where_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    config = remote()
    config.session_config.gateway.page = True
    check_gateway(config, Replay, synchronous=False, here=True)
    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    check_gateway(config, Replay, synchronous=False, here=False)
    with pytest.raises(MissingExtra, match=r"session_config\.gateway\.page needs .*gateway"):
        check_gateway(config, Replay, synchronous=False, here=True)


@pytest.mark.parametrize("host", ["10.0.0.1", "::", "example.org", ""])
def test_only_this_machine_is_served(host: str) -> None:
    with pytest.raises(ConfigError, match=r"session_config\.gateway\.host is"):
        remote(**{"session_config.gateway.host": host})


OUTSIDE = "session_config.gateway.host"


def test_strangers_need_tokens_and_something_encrypts() -> None:
    tokens = {OUTSIDE: "10.0.0.1", "session_config.gateway.tokens": True}
    with pytest.raises(ConfigError, match=r"or gateway\.plaintext to true"):
        remote(**tokens)
    assert remote(**tokens, **{"session_config.gateway.plaintext": True})
    tls = {
        "session_config.gateway.tls.cert": str(CERTIFICATE),
        "session_config.gateway.tls.key": str(CERTIFICATE),
    }
    assert remote(**tokens, **tls)
    with pytest.raises(ConfigError, match=r"set gateway\.tokens to true"):
        remote(**{OUTSIDE: "10.0.0.1"}, **tls)
    assert remote(**{OUTSIDE: "10.0.0.1", "session_config.security.insecure": True})


def test_half_a_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tls\.key is null"):
        remote(**{"session_config.gateway.tls.cert": str(CERTIFICATE)})
    missing = {
        "session_config.gateway.tls.cert": "/dev/null/a",
        "session_config.gateway.tls.key": "/dev/null/b",
    }
    with pytest.raises(ConfigError, match=r"tls\.cert: there is no file /dev/null/a"):
        remote(**missing)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_names_of_this_machine_need_no_protection(host: str) -> None:
    assert remote(**{"session_config.gateway.host": host})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("port", 70_000),
        ("port", -1),
        ("num", -1),
        ("num_envs", 0),
        ("max_clients", 0),
        ("max_batch", 0),
        ("answer_seconds", 0.0),
        ("grace_seconds", -1.0),
        ("idle_seconds", -1.0),
        ("threads", 0),
    ],
)
def test_a_number_out_of_its_range_is_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"session_config\.gateway\.{key} is"):
        remote(**{f"session_config.gateway.{key}": value})


def test_a_port_in_use_is_named() -> None:
    config = remote(**{"session_config.gateway.num": 2})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config.session_config.gateway.port = port
        with pytest.raises(UsageError, match=rf"gateway-0 needs port {port} of 127\.0\.0\.1"):
            check_ports(config)
        config.session_config.gateway.port = port - 1
        with pytest.raises(UsageError, match=f"needs port {port}|needs port {port - 1}"):
            check_ports(config)
    config.session_config.gateway.port = 65_535
    with pytest.raises(UsageError, match=r"gateway-1 needs port 65536|in use"):
        check_ports(config)
    config.session_config.gateway.port = 0
    check_ports(config)


def test_serial_runs_have_no_clients(tmp_path: Path) -> None:
    from session.folder import RunFolder

    config = remote()
    with pytest.raises(UsageError, match="cannot take part in a serial run"):
        SerialStarter().launch(config, make_topology(config), RunFolder(tmp_path))
