"""Parts of networks by name, such as `torso` and `torso.encoder`: frozen, or loaded alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import nn

from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from surreal_like.errors import SpecError
from surreal_like.network.files import whole


def list_parts(networks: Iterable[nn.Module]) -> list[str]:
    """Returns the names of all parts that have parameters or buffers, each once."""
    return list(
        dict.fromkeys(
            name
            for network in networks
            for name, part in network.named_modules()
            if name and part.state_dict()
        )
    )


def freeze_parts(networks: Iterable[nn.Module], parts: Collection[str]) -> None:
    """Keeps parts of networks as they are.

    Their parameters get no gradient, and no optimizer that is made afterwards has them. They are in
    evaluation mode, so that moments and other buffers stay, too.
    """
    for network in networks:
        for name, part in network.named_modules():
            if name in parts:
                part.requires_grad_(False).eval()


def check_parts(parts: Iterable[str], known: Collection[str], what: str) -> None:
    """Rejects names of parts that no network has.

    Args:
        parts: names that a user has given.
        known: names of :func:`list_parts`.
        what: place of the names, for the message.

    Raises:
        ConfigError: a name is unknown; the message has the nearest one, and those at the top.
    """
    top = ", ".join(name for name in known if "." not in name)
    for part in parts:
        if part not in known:
            near = did_you_mean(part, known, lead="; ")
            raise ConfigError(f"{what}: no network has a part {part!r}{near}; there are {top}")


def choose_parts(
    own: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor], parts: Iterable[str]
) -> dict[str, torch.Tensor]:
    """Returns the tensors of `own`, those of the parts replaced by the tensors of `given`.

    Names are `<network>/<tensor>`. Where `given` has no network of that name, it is the tensor of
    another network: so a torso fits networks of other algorithms. Halves become numbers of the type
    that `own` has.

    Raises:
        SpecError: `given` lacks a part, or a tensor of it differs in shape or dtype; the message
            has both sides.
    """
    anywhere = {_short(name): name for name in given} | {name: name for name in given}
    chosen = dict(own)
    for part in parts:
        mine = [name for name in own if _short(name).startswith(f"{part}.")]
        theirs = [name for name in given if _short(name).startswith(f"{part}.")]
        if not theirs:
            top = dict.fromkeys(_short(name).partition(".")[0] for name in given)
            raise SpecError(f"there is no part {part!r} in it, only {', '.join(top)}")
        more = {_short(name) for name in theirs} - {_short(name) for name in mine}
        for name in (*mine, *sorted(more)):
            source = anywhere.get(name, anywhere.get(_short(name), ""))
            found = given.get(source)
            if found is not None and name in own:
                found = whole(found, own[name])
            here, there = _describe(own.get(name)), _describe(found)
            if found is None or here != there:
                raise SpecError(f"{_short(name)} has {here} in this network, {there} in that one")
            chosen[name] = found
    return chosen


def _short(name: str) -> str:
    return name.rpartition("/")[2]


def _describe(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "nothing"
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
