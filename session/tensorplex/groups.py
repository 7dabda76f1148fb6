"""Client ids of metrics, and groups that map an id and a tag to a folder and a curve.

TensorBoard draws equal tags from different folders as curves of one chart. In a normal group all
clients share one folder and the id is part of the tag; in an indexed group each client has its
own folder, and a bin in the tag bounds the number of curves in one chart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from session.errors import UsageError
from session.process.component import CLIENT, is_client

_CLIENT_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)+", re.ASCII)
_ID_LIMIT = 200
_TAG_LIMIT = 300
_BIN = 8
NORMAL_GROUPS = ("learner", "session")
INDEXED_GROUPS = ("agent", "gateway", "eval", "replay")


def check_client_id(client_id: Any) -> str:
    """Returns the id if it is ``<group>/<id>`` and safe as a path.

    Raises:
        UsageError: the id is invalid.
    """
    valid = isinstance(client_id, str) and len(client_id) <= _ID_LIMIT
    if not valid or not _CLIENT_ID.fullmatch(client_id):
        raise UsageError(
            f"metrics client id {str(client_id)[:_ID_LIMIT]!r}: write <group>/<id>, such as "
            "agent/3, in letters, digits, '_', '-' and '.', no part beginning with '.' or '-'"
        )
    return str(client_id)


def own_client_id(name: Any) -> str:
    """Returns the id of a script that is no component: ``client/`` and a name chosen by its user.

    Args:
        name: ``<group>/<id>``, such as ``simulator/0``, of a group that no component has.

    Raises:
        UsageError: the name is invalid.
    """
    client_id = f"{CLIENT}/{name}"
    if not isinstance(name, str) or "/" not in name or not is_client(name_of(client_id)):
        raise UsageError(
            f"client name {str(name)[:_ID_LIMIT]!r}: write <group>/<id>, such as simulator/0, in "
            "lower case letters, digits and '-', at most 56 characters"
        )
    group = name.partition("/")[0]
    if group in (*NORMAL_GROUPS, *INDEXED_GROUPS):
        raise UsageError(
            f"client name '{name}': the group {group} belongs to components of the run"
        )
    return check_client_id(client_id)


def name_of(client_id: str) -> str:
    """Returns the sender name of a client's messages: ``agent-3`` for ``agent/3``."""
    return client_id.replace("/", "-")


def check_tag(tag: Any) -> str:
    """Returns the tag if it is valid as the name of a curve.

    Raises:
        UsageError: the tag is invalid.
    """
    if not isinstance(tag, str) or not tag.strip(".:# ") or not tag.isprintable():
        raise UsageError(f"metric tag {str(tag)[:80]!r}: expected a text of printable characters")
    if len(tag) > _TAG_LIMIT:
        raise UsageError(
            f"metric tag {tag[:80]!r}... has {len(tag)} characters, the limit is {_TAG_LIMIT}"
        )
    return tag


@dataclass(frozen=True, slots=True)
class Group:
    """Place of one curve: a folder below the root, and the tag in its event file."""

    folder: str
    tag: str


class Groups:
    """The groups of one server; all must be registered before the first record."""

    def __init__(self) -> None:
        self._bins: dict[str, int | None] = {}

    def register_normal_group(self, name: str) -> Groups:
        """Registers a group whose clients share one folder; their ids become sections of tags."""
        self._bins[name] = None
        return self

    def register_indexed_group(self, name: str, bin_size: int = 0) -> Groups:
        """Registers a group of clients numbered from 0, each with its own folder.

        Args:
            name: the group.
            bin_size: number of clients that share a chart; 0: all, and tags have no suffix.
        """
        self._bins[name] = bin_size
        return self

    def place(self, client_id: str, tag: str) -> Group:
        """Returns folder and tag of one client's curve.

        Raises:
            UsageError: the id is unsafe, of an unknown group, or no number in an indexed group.
        """
        group, _, name = check_client_id(client_id).partition("/")
        if group == CLIENT:
            return self._place_of_script(name, check_tag(tag))
        # A component of a policy, such as `replay-left/0`, shares the charts of its kind.
        kind = group.partition("-")[0]
        if kind not in self._bins:
            known = ", ".join(self._bins)
            raise UsageError(f"metrics client id '{client_id}': the groups are {known}")
        bin_size = self._bins[kind]
        tag = check_tag(tag)
        if bin_size is None:
            return Group(group, _join(name, tag))
        if not name.isdigit():
            raise UsageError(
                f"metrics client id '{client_id}': group {group} counts its clients, "
                f"as in {group}/0"
            )
        return Group(f"{group}/{int(name)}", _join(kind, tag) + _suffix(int(name), bin_size))

    def _place_of_script(self, own_name: str, tag: str) -> Group:
        """Place of a script's curve: numeric ids have one folder each, other ids share one."""
        own_client_id(own_name)
        group, _, name = own_name.partition("/")
        if name.isdigit():
            return Group(f"{group}/{int(name)}", _join(group, tag))
        return Group(group, _join(name, tag))


def _join(section: str, tag: str) -> str:
    own_section = tag.startswith((".", ":"))
    return section + ("" if own_section else "/") + tag.replace(":", ".").replace("#", ".")


def _suffix(index: int, bin_size: int) -> str:
    if bin_size == 0:
        return ""
    start = index // bin_size * bin_size
    return f"/{start}" if bin_size == 1 else f"/{start}-{start + bin_size - 1}"


def standard_groups(agents_planned: int) -> Groups:
    """Makes the groups of a run: ``learner`` and ``session`` normal, the others indexed.

    Args:
        agents_planned: maximum number of agents. The number of curves in one chart depends on it,
            not on the present number, so that scaling renames no curve.
    """
    groups = Groups()
    bin_size = 0 if agents_planned <= _BIN else _BIN
    for name in NORMAL_GROUPS:
        groups.register_normal_group(name)
    for name in INDEXED_GROUPS:
        groups.register_indexed_group(name, bin_size)
    return groups
