"""The defaults of `session_config` for launchers that reserve resources, such as Kubernetes."""

from __future__ import annotations

from session.config.key import Key, section

KUBERNETES = section(
    "Objects of a run in a Kubernetes cluster.",
    {
        "name": Key(
            None,
            "Prefix of the names of all objects; None: the experiment's name.",
            optional="_str_",
        ),
        "namespace": Key(
            None,
            "Existing namespace of the objects; None: that of kubectl's context.",
            optional="_str_",
        ),
        "context": Key(None, "Context of kubectl; None: the current context.", optional="_str_"),
        "image": Key("surreal-like:cpu", "Image of all containers."),
        "image_pull_policy": Key(
            "IfNotPresent",
            "Image pull policy: Always, IfNotPresent or Never.",
            one_of=("Always", "IfNotPresent", "Never"),
        ),
        "storage_class": Key(
            None,
            "Storage class of the volumes; None: the cluster's default.",
            optional="_str_",
        ),
        "volume_bytes": section(
            "Sizes of the volumes.",
            {
                "learner": Key(10_737_418_240, "Checkpoints, progress and result.", unit="bytes"),
                "tensorplex": Key(5_368_709_120, "Event files.", unit="bytes"),
                "loggerplex": Key(5_368_709_120, "Logs.", unit="bytes"),
            },
        ),
        "spot_taints": Key(
            [
                "cloud.google.com/gke-spot",
                "kubernetes.azure.com/scalesetpriority",
                "spot",
            ],
            "Keys of taints that agents and evaluators tolerate: those of spot "
            "(preemptible) nodes.",
        ),
        "spot_labels": Key(
            [
                "cloud.google.com/gke-spot=true",
                "kubernetes.azure.com/scalesetpriority=spot",
                "eks.amazonaws.com/capacityType=SPOT",
                "karpenter.sh/capacity-type=spot",
            ],
            "Labels of spot nodes, as key=value.",
        ),
        "prefer_spot": Key(False, "Schedule agents and evaluators preferably on spot nodes."),
        "node_selector": Key(
            {}, "Required node labels for agents and evaluators, as in {pool: cheap}."
        ),
        "gateway_service": Key(
            "ClusterIP",
            "Service of the gateways, for their clients: ClusterIP, NodePort or LoadBalancer.",
            one_of=("ClusterIP", "NodePort", "LoadBalancer"),
        ),
        "pods": Key(
            {},
            "Additional Kubernetes fields for the pods of a role: nodeSelector, "
            "tolerations, affinity, topologySpreadConstraints, priorityClassName, "
            "serviceAccountName, imagePullSecrets, runtimeClassName, labels, annotations, "
            "env. A role is a key of resources, or all, as in {learner: {nodeSelector: "
            "{pool: gpu}}}.",
        ),
        "labels": Key(
            {},
            "Labels of all objects and pods, as in {team: robots}; those of the run are reserved.",
        ),
        "annotations": Key({}, "Annotations of all objects and pods."),
        "metrics_from": Key(
            [],
            "Namespaces whose pods may read session_config.tensorplex.prometheus_port; "
            "empty: the port is on the loopback interface of its pod.",
        ),
        "network_policy": Key(
            True,
            "Allow only the run's own pods to reach its ports, if the network plugin supports it.",
        ),
        "scratch_bytes": Key(
            536_870_912,
            "Size limit of /tmp, and of the run folder in pods without a volume; for a "
            "replay shard its memory is added; requested as ephemeral storage; 0: no "
            "limit.",
            unit="bytes",
        ),
        "ttl_seconds": Key(
            3600,
            "Time from the end to the removal of all objects but volumes; None: never.",
            unit="seconds",
            optional="_int_",
        ),
    },
)
