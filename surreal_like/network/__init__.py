"""Networks: the flat Module, torsos for any observation, recurrent cores, heads."""

from surreal_like.network.distribution import (
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
    SquashedGaussian,
)
from surreal_like.network.encoder import CNN, make_encoder
from surreal_like.network.flat import (
    check_manifest,
    flatten_parameters,
    load_flat,
    manifest_of,
    named_tensors,
    read_flat,
)
from surreal_like.network.head import DuelingHead, ScaledValueHead, ValueHead, make_policy_head
from surreal_like.network.module import Module
from surreal_like.network.recurrent import GRUCore, LSTMCore, make_core
from surreal_like.network.torso import MLP, Torso, make_torso

__all__ = [
    "CNN",
    "MLP",
    "Categorical",
    "Distribution",
    "DuelingHead",
    "GRUCore",
    "Gaussian",
    "LSTMCore",
    "Module",
    "MultiCategorical",
    "ScaledValueHead",
    "SquashedGaussian",
    "Torso",
    "ValueHead",
    "check_manifest",
    "flatten_parameters",
    "load_flat",
    "make_core",
    "make_encoder",
    "make_policy_head",
    "make_torso",
    "manifest_of",
    "named_tensors",
    "read_flat",
]
