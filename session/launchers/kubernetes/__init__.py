"""Runs on Kubernetes: objects from a topology, and commands through kubectl."""

from session.launchers.kubernetes.cluster import KubernetesCluster
from session.launchers.kubernetes.objects import make_objects
from session.launchers.kubernetes.run import KubernetesRun
from session.launchers.kubernetes.settings import prepare

__all__ = ["KubernetesCluster", "KubernetesRun", "make_objects", "prepare"]
