"""Launches a run on a Ray cluster: writes the lines that submit its job, and submits it."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

import yaml

from session.addons.engines.engine_program import call_program
from session.addons.engines.machines import COMMAND
from session.addons.ray.run import RayRun
from session.addons.submitted.run import SubmittedCluster
from session.process.component import Resources, resources_of

# Time from SIGTERM until Ray kills a job that it stops; without this variable it is 3 s.
_STOP_WAIT_SECONDS = 120
_ENVIRONMENT = {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_WAIT_SECONDS)}
# The name of a RayJob has 47 characters at most, with a hyphen and the beginning of a hash.
_CUT = 40
_HEAD = Resources(1.0, 2 << 30)
_SUBMIT = """#!/bin/bash
# Begins the run, or goes on with it, as a job of a Ray cluster that is there.
set -euo pipefail
cd {folder}
job={name}-$(date +%s)
{ray} job submit {options} --no-wait --submission-id "$job" -- {command}
echo "$job" >core.job
"""


class RayCluster(RayRun, SubmittedCluster):
    """Launches a run as a job of Ray, and then controls it."""

    name = "ray"

    def scripts(self) -> Mapping[str, str]:
        session, needs = self._config.session_config, self._topology.requests()
        options = [
            *(["--address", session.ray.address] if session.ray.address else ()),
            *("--entrypoint-num-cpus", f"{needs.cpu:g}"),
            *("--entrypoint-num-gpus", str(needs.gpu)),
            *("--entrypoint-memory", str(needs.memory_bytes)),
            *("--runtime-env-json", json.dumps({"env_vars": _ENVIRONMENT})),
        ]
        submit = _SUBMIT.format(
            folder=shlex.quote(str(self.jobs)),
            name=shlex.quote(self._folder.path.name),
            ray=shlex.quote(str(Path(sys.executable).with_name("ray"))),
            options=shlex.join(options),
            command=shlex.join([*COMMAND, "ray-run", str(self._folder)]),
        )
        files = {"submit.sh": submit}
        # Image and kinds of nodes are settings of Kubernetes.
        if "kubernetes" in session:
            files["rayjob.yaml"] = yaml.safe_dump(self._ray_job(), sort_keys=False)
        return files

    def _ray_job(self) -> dict[str, Any]:
        """Returns a RayJob for KubeRay: a cluster that begins and ends with the run."""
        session, needs = self._config.session_config, self._topology.requests()
        agent = resources_of(session, "agent")
        spot = {
            "nodeSelector": dict(session.kubernetes.node_selector),
            "tolerations": [
                {"key": key, "operator": "Exists"} for key in session.kubernetes.spot_taints
            ],
        }
        return {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {"name": _job_name(self._folder.path.name)},
            "spec": {
                "entrypoint": f"surreal-like ray-run {shlex.quote(str(self._folder))}",
                "entrypointNumCpus": needs.cpu,
                "entrypointNumGpus": needs.gpu,
                "runtimeEnvYAML": yaml.safe_dump({"env_vars": _ENVIRONMENT}),
                "shutdownAfterJobFinishes": True,
                "rayClusterSpec": {
                    "enableInTreeAutoscaling": True,
                    "headGroupSpec": self._group(_HEAD, cpus=0),
                    "workerGroupSpecs": [
                        self._workers("core", needs, least=1, most=1),
                        self._workers("agents", agent, least=0, most=session.agent.num, pod=spot),
                    ],
                },
            },
        }

    def _workers(
        self, name: str, needs: Resources, *, least: int, most: int, pod: Mapping[str, Any] = {}
    ) -> dict[str, Any]:
        numbers = {"replicas": least, "minReplicas": least, "maxReplicas": most}
        return {"groupName": name, **numbers, **self._group(needs, ceil(needs.cpu), pod)}

    def _group(self, needs: Resources, cpus: int, pod: Mapping[str, Any] = {}) -> dict[str, Any]:
        """Returns the start parameters and the pod of a group of nodes."""
        session = self._config.session_config
        limits = {"memory": str(needs.memory_bytes)}
        if needs.gpu:
            limits["nvidia.com/gpu"] = str(needs.gpu)
        container = {
            "name": "ray",
            "image": session.kubernetes.image,
            "imagePullPolicy": session.kubernetes.image_pull_policy,
            "resources": {"requests": {"cpu": f"{needs.cpu:g}", **limits}, "limits": limits},
            "volumeMounts": [{"name": "runs", "mountPath": str(self._folder.path.parent)}],
        }
        claim = {"claimName": session.ray.claim}
        volumes = [{"name": "runs", "persistentVolumeClaim": claim}]
        spec = {"containers": [container], "volumes": volumes, **pod}
        return {"rayStartParams": {"num-cpus": str(cpus)}, "template": {"spec": spec}}

    def submit(self) -> None:
        call_program(["bash", str(self.jobs / "submit.sh")], _explain)


def _explain(said: str) -> str:
    last_line = said.strip().rpartition("\n")[2]
    return f"Ray refuses: {last_line}"


def _job_name(folder: str) -> str:
    """Returns the name of a RayJob: 47 letters, digits and hyphens at most, a letter first.

    A name that is cut has a hash of the whole one, as two runs must not have one object.
    """
    words = re.sub("[^a-z0-9]+", "-", folder.lower())
    name = words.lstrip("-0123456789")[:_CUT].rstrip("-") or "run"
    if name == words:
        return name
    return f"{name}-{hashlib.sha256(folder.encode()).hexdigest()[:6]}"
