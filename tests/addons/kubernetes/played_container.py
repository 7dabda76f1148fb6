"""One container of a played pod: a process with its own root, network, numbers and memory."""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.addons.kubernetes.old_server import POD_INDEX
from tests.addons.kubernetes.pod_root import Volume, image_environment, mount_script

Data = dict[str, Any]
_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS = 0.5, 4.0
_LONGEST_PERIOD_SECONDS = 10.0
_PATIENCE = 4
_STUMBLED = b"unshare: sigprocmask unblock failed"
_MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "": 1}


def now_text() -> str:
    """Returns the time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class PlayedContainer:
    """Starts, watches, probes and restarts one container.

    Args:
        container: of the pod's spec.
        pod: the object of the pod.
        folder: of this container on this machine.
        volumes: what is mounted.
        hosts: the pod's /etc/hosts.
        address: of the pod.
        namespace: of the pod, as ``ip netns`` knows it.
        image: where its packages are.
    """

    def __init__(
        self,
        container: Data,
        pod: Data,
        folder: Path,
        *,
        volumes: list[Volume],
        hosts: Path,
        address: str,
        namespace: str,
        image: Path,
    ) -> None:
        self.name: str = container["name"]
        self.restarts_wanted = True
        self.exit_code: int | None = None
        self.log = folder / "log"
        self._container = container
        self._pod = pod
        self._folder = folder
        self._volumes = volumes
        self._hosts = hosts
        self._namespace = namespace
        self._image = image
        self._variables = _variables(container, pod, address)
        self._process: subprocess.Popen[bytes] | None = None
        self._restarts = 0
        self._start_at = 0.0
        self._began = ""
        self._last: Data = {}
        self._probes: dict[str, _Probe] = {}
        folder.mkdir(parents=True)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ended_for_good(self) -> bool:
        return self.exit_code is not None and not self.alive and not self._restarts_again()

    def _restarts_again(self) -> bool:
        policy = self._pod["spec"].get("restartPolicy", "Always")
        again = policy == "Always" or (policy == "OnFailure" and self.exit_code != 0)
        return self.restarts_wanted and again

    def step(self, now: float) -> None:
        """Starts it, notes its end, or looks at its probes."""
        if self._process is None:
            if self.restarts_wanted and now >= self._start_at and not self.ended_for_good:
                self._start(now)
            return
        code = self._process.poll()
        if code is None:
            self._probe(now)
            return
        self.exit_code = _exit_code(code, self.log)
        self._process = None
        for probe in self._probes.values():
            probe.give_up()
        reason = "Completed" if self.exit_code == 0 else "Error"
        ended = {"exitCode": self.exit_code, "reason": reason}
        self._last = {"terminated": ended | {"startedAt": self._began, "finishedAt": now_text()}}
        if self._restarts_again():
            self._restarts += 1
            wait = min(_FIRST_BACKOFF_SECONDS * 2**self._restarts, _LONGEST_BACKOFF_SECONDS)
            self._start_at = now + wait

    def _start(self, now: float) -> None:
        self._began = now_text()
        root = self._folder / "root"
        script = mount_script(root, self._volumes, self._hosts, self._image)
        user = self._pod["spec"]["securityContext"]
        command = [*self._container["command"], *self._arguments()]
        begin = [
            *("setpriv", f"--reuid={user['runAsUser']}", f"--regid={user['runAsGroup']}"),
            *("--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"),
            *command,
        ]
        script += f"cd /\nexec chroot {root} {shlex.join(begin)}\n"
        joins = [f"echo $$ > {group}/cgroup.procs" for group in self._memory_group()]
        # The machine also plays the cluster around the pods, which must not wait for them.
        enter = ["nice", "-n", "5", "ip", "netns", "exec", self._namespace]
        enter += ["unshare", "--mount", "--uts", "--ipc"]
        enter += ["--pid", "--fork", "--kill-child", "sh", "-c", script]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", "\n".join([*joins, f"exec {shlex.join(enter)}"])],
                # Not as words of a command, which other users see: they can be secrets.
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        names = ("startupProbe", "livenessProbe", "readinessProbe")
        own = [each for each in names if each in self._container]
        self._probes = {each: _Probe(self._container[each], now) for each in own}

    def _arguments(self) -> list[str]:
        return [
            re.sub(r"\$\((\w+)\)", lambda found: self._variables.get(found[1], found[0]), each)
            for each in self._container["args"]
        ]

    def _assignments(self) -> list[str]:
        return [f"{name}={value}" for name, value in self._variables.items()]

    def _memory_group(self) -> list[Path]:
        """A group with the container's limit, where this machine has such groups."""
        limit = self._container.get("resources", {}).get("limits", {}).get("memory")
        if limit is None or not (_MEMORY_GROUPS / "memory.limit_in_bytes").exists():
            return []
        group = _MEMORY_GROUPS / f"{self._namespace}-{self.name}"
        group.mkdir(exist_ok=True)
        number, unit = re.fullmatch(r"(\d+)(\w*)", limit).groups()  # type: ignore[union-attr]
        (group / "memory.limit_in_bytes").write_text(str(int(number) * _UNITS[unit]))
        return [group]

    def _probe(self, now: float) -> None:
        """The rules of kubelet: nothing else before startup has been seen once."""
        begins = not self._succeeded("startupProbe")
        stepped = ("startupProbe",) if begins else ("livenessProbe", "readinessProbe")
        for name in stepped:
            if name in self._probes:
                self._probes[name].step(now, self)
        deadly = self._probes.get("startupProbe" if begins else "livenessProbe")
        if deadly is not None and deadly.failed:
            self.signal(signal.SIGKILL)

    def _succeeded(self, probe: str) -> bool:
        """A container without this probe passes."""
        return probe not in self._probes or self._probes[probe].succeeded

    def first(self) -> int | None:
        """The number of the container's first process, on this machine."""
        if self._process is None:
            return None
        # sh, which has become nice, ip and unshare in turn: its only child.
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        with suppress(OSError, IndexError):
            return int(children.read_text().split()[0])
        return None

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the first process."""
        first = self.first()
        if first is not None:
            with suppress(ProcessLookupError):
                os.kill(first, number)

    def enter(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a command in the container."""
        user = self._pod["spec"]["securityContext"]
        return [
            *("nsenter", f"--target={self.first()}", "--mount", "--net", "--uts", "--ipc"),
            *("--pid", "--root", "--wd=/"),
            *("setpriv", f"--reuid={user['runAsUser']}", f"--regid={user['runAsGroup']}"),
            *("--clear-groups", "--no-new-privs"),
            *("env", "--ignore-environment", *self._assignments(), *command),
        ]

    def status(self) -> Data:
        """Returns the status, as a kubelet reports it."""
        running = self.alive
        started = running and self._succeeded("startupProbe")
        state: Data = {"running": {"startedAt": self._began}}
        if not running:
            state = {"waiting": {"reason": "CrashLoopBackOff"}}
            if self.ended_for_good:
                state = self._last
        return {
            "name": self.name,
            "image": self._container["image"],
            "imageID": "",
            "started": started,
            "ready": bool(started and self._succeeded("readinessProbe")),
            "restartCount": self._restarts,
            "state": state
            if running or self._last
            else {"waiting": {"reason": "ContainerCreating"}},
            "lastState": {} if self.ended_for_good else self._last,
        }

    def join(self, timeout_seconds: float) -> None:
        """Waits until nothing of it lives."""
        if self._process is not None:
            self._process.wait(timeout_seconds)
        for probe in self._probes.values():
            probe.give_up()

    def close(self) -> None:
        """Gives back what is not a process."""
        for probe in self._probes.values():
            probe.give_up()
        group = _MEMORY_GROUPS / f"{self._namespace}-{self.name}"
        deadline = time.monotonic() + 2.0
        while group.is_dir() and time.monotonic() < deadline:
            with suppress(OSError):
                group.rmdir()


def _exit_code(code: int, log: Path) -> int:
    """As a cluster tells it: 128 and the number of the signal that ended the process.

    Some versions of unshare stumble over a child that was killed, and say so.
    """
    if code == 1 and _STUMBLED in log.read_bytes()[-200:]:
        return 128 + signal.SIGKILL
    return code if code >= 0 else 128 - code


def _variables(container: Data, pod: Data, address: str) -> dict[str, str]:
    """Of the image, then of the pod's spec; fields of the pod itself are looked up."""
    found = image_environment()
    for each in container["env"]:
        if "value" in each:
            found[each["name"]] = each["value"]
            continue
        path = each["valueFrom"]["fieldRef"]["fieldPath"]
        label = re.fullmatch(r"metadata\.labels\['(.+)'\]", path)
        if label is not None:
            labels: Data = pod["metadata"]["labels"]
            number = pod["metadata"]["name"].rpartition("-")[2]
            found[each["name"]] = labels.get(label[1], number if label[1] == POD_INDEX else "")
        else:
            found[each["name"]] = {"status.podIP": address}[path]
    return found


class _Probe:
    """One probe: how often, and how often it may fail.

    Args:
        settings: of the container's spec.
        now: when the container began.
    """

    def __init__(self, settings: Data, now: float) -> None:
        self.succeeded = False
        self.failed = False
        self._settings = settings
        self._failures = 0
        self._next_at = now + 1.0
        self._began = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def step(self, now: float, container: PlayedContainer) -> None:
        if self._process is None:
            if now >= self._next_at:
                self._begin(now, container)
            return
        code = self._process.poll()
        # A machine that runs many tests at once is slower than any node.
        if code is None and now - self._began < _PATIENCE * self._settings["timeoutSeconds"]:
            return
        self.give_up()
        # Not all at the same time; and shorter than on a cluster, for a test waits for it.
        period_seconds = min(self._settings["periodSeconds"], _LONGEST_PERIOD_SECONDS)
        self._next_at = self._began + period_seconds * random.uniform(0.8, 1.2)
        self._failures = 0 if code == 0 else self._failures + 1
        if code == 0:
            self.succeeded = True
        elif self._failures >= self._settings["failureThreshold"]:
            self.succeeded, self.failed = False, True

    def _begin(self, now: float, container: PlayedContainer) -> None:
        self._began = now
        self._process = subprocess.Popen(
            container.enter(self._settings["exec"]["command"]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def give_up(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
