"""Declares the gateway: a component, its settings and its commands."""

from __future__ import annotations

from session.addons import AddOn, Command

_ROOM = "surreal_like.addons.gateway"
ADD_ON = AddOn(
    keys={"session_config.gateway": f"{_ROOM}.defaults:GATEWAY"},
    acts=("gateway",),
    hooks={
        "check": f"{_ROOM}.settings:check_gateway",
        "specs": f"{_ROOM}.settings:remote_specs",
        "components": f"{_ROOM}.hooks:make_components",
        "ports": f"{_ROOM}.hooks:ports_of",
        "pods": f"{_ROOM}.pods:prepare_pods",
        "tokens": "session.addons.gateway.client_tokens:read_tokens",
        "pages": f"{_ROOM}.hooks:pages_of",
    },
    commands=(
        Command(
            "client",
            "run",
            "HOST:PORT --env NAME",
            "play an environment for the gateway of a run",
            "main.addons.gateway.client:run",
        ),
        Command(
            "serve",
            "use",
            "RUN",
            "let clients act with a policy over a socket",
            "main.addons.gateway.serve:run",
        ),
        Command(
            "clients",
            "operate",
            "RUN [--token NAME]",
            "sessions of a run's gateways, and tokens",
            "main.addons.gateway.clients:run",
        ),
    ),
    files=(
        "main/gateway.py",
        "configs/cartpole_browser.yaml",
        "configs/cartpole_remote.yaml",
    ),
)
