"""Clients of a gateway whose agent sends gradients of their unrolls."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from session.process.context import Context
from surreal_like.addons.gateway.service import GatewayService
from surreal_like.addons.gradients.a3c import A3C
from surreal_like.agent.loop import make_agent, prepare_agent
from surreal_like.algorithm.algorithm import defaults_of
from surreal_like.experience.chunk import GRADIENT
from tests.addons.gateway import rig
from tests.addons.gateway.rig import make_stage

ONE_WIDTH = {"num_envs": 1}


def build(context: Context) -> GatewayService:
    """As the entry point of a gateway does it, with A3C."""
    return GatewayService(
        context,
        lambda mode: prepare_agent(context, make_agent(context, A3C.agent, mode, 0), A3C.learner),
    )


@pytest.mark.parametrize("memory", ["", "lstm"])
def test_a_gateway_sends_gradients_of_the_unrolls_of_its_clients(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rig, "build", build)
    learner = defaults_of(A3C.learner)
    learner.replay.type = "FIFOReplay"
    learner.model.memory = memory
    with make_stage(learner=learner, env=ONE_WIDTH, publish=False) as stage:
        network = stage.service._sending.agent.module_dict()["network"]
        size = sum(each.numel() for each in network.parameters())
        stage.learner.network = network  # type: ignore[assignment]
        stage.learner.publish()
        one, other = stage.client(), stage.client()
        # Unrolls of four steps: two of each client, and what is left at the end.
        for step in range(10):
            for client in (one, other):
                answer = client.request("step" if step else "reset")
                assert answer["kind"] == "action"
        one.request("end")
        account = stage.finish()
    chunks = stage.replay.chunks
    gradients = stage.replay.column(GRADIENT)
    assert gradients.shape == (len(chunks), 1, size)
    assert gradients.dtype == np.float32
    assert (np.abs(gradients).sum(-1) > 0).all()
    assert stage.replay.column("extras/rows").sum() == account["env_steps"] == 19
    assert account["pushed"] == account["inserted"] == len(chunks) >= 5
    assert {chunk.shape for chunk in chunks} == {(1, 1)}
    assert account["episodes"] == 1
    assert torch.is_grad_enabled()
