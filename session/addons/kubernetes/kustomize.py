"""Manifests, and the same objects for ``kubectl apply -k``: a base and an overlay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from session.addons.kubernetes.objects import objects_of
from session.addons.kubernetes.secret import KEYS_FOLDER, secret_files
from session.addons.kubernetes.settings import INSTANCE, Setting
from session.config.file import PlainDumper, dump_yaml
from session.errors import UsageError


class _Dumper(PlainDumper):
    """Writes lists and texts of several lines in block style."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: Any = None) -> Any:
        return yaml.SafeDumper.represent_sequence(self, tag, sequence, flow_style=False)

    def represent_text(self, text: str) -> yaml.Node:
        return self.represent_scalar(
            "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
        )

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(str, _Dumper.represent_text)


def dump_object(data: Any) -> str:
    """Formats one object as a YAML document, without the leading ``---``."""
    return dump_yaml(data, _Dumper, width=1 << 16)


def dump_objects(objects: Iterable[Any]) -> str:
    """Formats objects as one YAML text."""
    return "---\n".join(map(dump_object, objects))


Data = dict[str, Any]

_KUSTOMIZATION = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
_BASE_FILES = {
    "network.yaml": ("NetworkPolicy",),
    "services.yaml": ("Service",),
    "volumes.yaml": ("PersistentVolumeClaim",),
    "workloads.yaml": ("Deployment", "StatefulSet", "Job"),
}
# List -> field that identifies its elements; other lists are replaced as a whole.
_MERGED_BY = {"containers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath"}


def base_files(setting: Setting) -> dict[str, str]:
    """Returns name -> text of the files of the base.

    Args:
        setting: made of the default configs.
    """
    objects = _without_config(_omit_prefix(setting))
    files = {
        name: dump_objects([each for each in objects if each["kind"] in kinds])
        for name, kinds in _BASE_FILES.items()
    }
    return {
        "kustomization.yaml": dump_objects([{**_KUSTOMIZATION, "resources": [*files]}]),
        **files,
    }


def overlay_files(setting: Setting, base: Setting, *, base_path: str) -> dict[str, str]:
    """Returns name -> text of the files of an overlay.

    Args:
        setting: the run.
        base: the run from which the base was made.
        base_path: path of the base, relative to the overlay.
    """
    there = {_key(each): each for each in _without_config(_omit_prefix(base))}
    wanted = _omit_prefix(setting)
    config = next(each for each in wanted if each["kind"] == "ConfigMap")
    objects = _without_config(wanted)
    more = [each for each in objects if _key(each) not in there]
    patches = [
        {"apiVersion": each["apiVersion"], "kind": each["kind"], **difference}
        for each in objects
        if (difference := _patch_of(there.get(_key(each), each), each))
    ]
    gone = there.keys() - {_key(each) for each in objects}
    patches += [_deletion(each) for key, each in there.items() if key in gone]
    files = {"config.yaml": [config], "more.yaml": more, "patches.yaml": patches}
    files = {name: objects for name, objects in files.items() if objects}
    kustomization = _kustomization(setting, base_path, files)
    return {
        "kustomization.yaml": dump_objects([kustomization]),
        **{name: dump_objects(objects) for name, objects in files.items()},
    }


def _kustomization(setting: Setting, base_path: str, files: Mapping[str, Any]) -> Data:
    space = setting.session.kubernetes.namespace
    gateway = setting.session.get("gateway")
    tls = gateway is not None and bool(gateway.num) and gateway.tls.cert is not None
    added = {key: values for key, values in setting.added().items() if values}
    keys = [
        {
            "name": secret,
            "files": [f"{name}={KEYS_FOLDER}/{file}" for name, file in parts.items()],
            "options": {"disableNameSuffixHash": True, **added},
        }
        for secret, parts in secret_files(tls=tls).items()
    ]
    return {
        **_KUSTOMIZATION,
        **({"namespace": str(space)} if space is not None else {}),
        "namePrefix": f"{setting.name}-",
        "labels": [{"pairs": {INSTANCE: setting.name}, "includeSelectors": True}],
        "resources": [base_path, *(name for name in files if name != "patches.yaml")],
        **({"patches": [{"path": "patches.yaml"}]} if "patches.yaml" in files else {}),
        **({"secretGenerator": keys} if setting.has_keys else {}),
    }


def _omit_prefix(setting: Setting) -> list[Data]:
    """Returns the objects before kustomize adds prefix and namespace."""
    objects = objects_of(replace(setting, prefixed=False))
    for each in objects:
        each["metadata"].pop("namespace", None)
    return objects


def _without_config(objects: Iterable[Data]) -> list[Data]:
    return [each for each in objects if each["kind"] != "ConfigMap"]


def _key(data: Data) -> tuple[str, str]:
    return data["kind"], data["metadata"]["name"]


def _deletion(data: Data) -> Data:
    metadata = {"name": data["metadata"]["name"]}
    return {
        "$patch": "delete",
        "apiVersion": data["apiVersion"],
        "kind": data["kind"],
        "metadata": metadata,
    }


def _patch_of(before: Data, after: Data) -> Data:
    """Returns the strategic merge patch of an object, empty without differences."""
    changes = _changes(before, after)
    if not changes:
        return {}
    metadata = {**changes.get("metadata", {}), "name": after["metadata"]["name"]}
    return {**changes, "metadata": metadata}


def _changes(before: Data, after: Data) -> Data:
    # Kustomize itself sets the instance label, also in selectors.
    found: Data = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if old == value or key == INSTANCE:
            continue
        if isinstance(old, dict) and isinstance(value, dict):
            inner = _changes(old, value)
            if inner:
                found[key] = inner
        elif isinstance(old, list) and key in _MERGED_BY:
            found[key] = _list_changes(old, value, _MERGED_BY[key])
        else:
            found[key] = value
    return {key: value for key, value in found.items() if value != {} or after.get(key) == {}}


def _list_changes(before: list[Data], after: list[Data], by: str) -> list[Data]:
    old = {each[by]: each for each in before}
    new = {each[by]: each for each in after}
    gone = [{"$patch": "delete", by: key} for key in old if key not in new]
    changed = [
        {by: key, **_changes(old.get(key, {}), each)}
        for key, each in new.items()
        if old.get(key) != each
    ]
    return [*changed, *gone]


def write_files(folder: Path, files: Mapping[str, str], heading: str) -> None:
    """Writes generated files.

    Raises:
        UsageError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(f"{heading}\n{text}")
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from None
