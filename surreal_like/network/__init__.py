"""Networks: the flat Module, torsos that fit any observation, heads."""

from surreal_like.network.encoder import NatureCNN, make_encoder
from surreal_like.network.flat import (
    check_manifest,
    flatten_parameters,
    load_flat,
    manifest_of,
    named_tensors,
    read_flat,
)
from surreal_like.network.head import DuelingHead, QHead
from surreal_like.network.module import Module
from surreal_like.network.torso import MLP, Torso

__all__ = [
    "MLP",
    "DuelingHead",
    "Module",
    "NatureCNN",
    "QHead",
    "Torso",
    "check_manifest",
    "flatten_parameters",
    "load_flat",
    "make_encoder",
    "manifest_of",
    "named_tensors",
    "read_flat",
]
