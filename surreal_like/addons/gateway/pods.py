"""Gateways in the pods of a cluster."""

from __future__ import annotations

from session.addons.gateway.client_tokens import check_address
from session.config import Config
from session.errors import ConfigError


def prepare_pods(session: Config, certificate: tuple[str, str]) -> None:
    """Makes gateways listen at the addresses of their pods, with files of the Secrets.

    Args:
        session: ``session_config``, which is changed.
        certificate: files of certificate and key in a pod.
    """
    gateway, key = session.gateway, "session_config.gateway"
    if not gateway.num:
        return
    if not gateway.port:
        raise ConfigError(f"{key}.port is 0, but on Kubernetes a Service needs to know it: set it")
    if session.security.insecure and (gateway.tokens or gateway.tls.cert is not None):
        raise ConfigError(
            f"session_config.security.insecure is true, so the run has no Secrets for {key}.tokens "
            f"and {key}.tls: set it to false"
        )
    gateway.host = "$(POD_IP)"
    check_address(gateway, insecure=session.security.insecure)
    service = f"{session.kubernetes.name}-gateway"
    gateway.hosts = [*(each for each in gateway.hosts if each != service), service]
    if gateway.tls.cert is not None:
        gateway.tls.cert, gateway.tls.key = certificate
