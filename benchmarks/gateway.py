"""Clients of a gateway, beside an echo of the same bytes by epoll, and by gRPC streams.

Each server has a process of its own; the clients are one process, this one. Prints tables and JSON,
and writes benchmarks/results/gateway.json; about eight minutes.

    python benchmarks/gateway.py [--rounds 7] [--seconds 0.4] [--only answers cost doors ...]
    python benchmarks/gateway.py --soak MINUTES [--clients 256]

A soak looks at memory, descriptors and latency while sessions come and go, and writes
benchmarks/results/gateway_soak.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import metadata
from itertools import count
from pathlib import Path

import numpy as np
import psutil
import torch

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "ours"))

from compare import Found, Group, Line, Side, keep, measure  # noqa: E402
from gateway_load import Connection, Sample, Way  # noqa: E402
from gateway_load import measure as load  # noqa: E402
from gateway_runs import runs  # noqa: E402
from gateway_servers import (  # noqa: E402
    GRPC_MOST,
    Server,
    certificate,
    echo,
    floored,
    grpc_echo,
    measure_grpc,
    process_of,
    training,
)
from gateway_soak import soak  # noqa: E402
from setting import Given, arguments  # noqa: E402
from tables import tables  # noqa: E402

from surreal_like.network.encoder import CNN  # noqa: E402

COUNTS = (1, 8, 32, 48, 64, 128, 256)
TRAINED = (32, 128, 256, 512)
PACED_SECONDS = 1 / 30
BATCH_SECONDS = 4.0
STREAMS = 32
IMAGE = (84, 84, 4)
IDLE = 64
# Clients of the only published figure of such a server.
PUBLISHED = 32
ASKS = Way()
# Rows are recorded, the learner waits.
IDLE_LEARNER = "learner_config.replay={capacity: 4_000_000, min_size: 4_000_000}"
NO_THINKING = (
    "Float32 [4] and a reward in, a discrete action out; a client asks once it has its answer"
)


class Turn:
    """Samples of the servers in each round, each measured when it is first needed.

    Args:
        servers: name -> measurement of so many clients.
        counts: numbers of clients, by server.
    """

    def __init__(
        self, servers: Mapping[str, Callable[[int], Sample]], counts: Mapping[str, Sequence[int]]
    ) -> None:
        self._servers, self._counts = servers, counts
        self._found: dict[tuple[int, str, int], Sample] = {}

    def sample(self, number: int, name: str, clients: int) -> Sample:
        """Returns the sample of a round."""
        key = number, name, clients
        if key not in self._found:
            self._found[key] = self._servers[name](clients)
        return self._found[key]

    def of(self, name: str) -> Callable[[], dict[str, float]]:
        """Returns the rounds of a side: ``clients unit`` -> number."""
        numbers = count()

        def run() -> dict[str, float]:
            number = next(numbers)
            found: dict[str, float] = {}
            for clients in self._counts[name]:
                sample = self.sample(number, name, clients)
                found[f"{clients} p50"] = 1e3 * sample.p50_seconds
                found[f"{clients} p99"] = 1e3 * sample.p99_seconds
                found[f"{clients} steps"] = sample.steps_per_second
                found[f"{clients} cpu"] = 1e6 * sample.cpu_seconds
            return found

        return run


def part(found: Found, name: str, unit: str, better: str, ends: tuple[str, ...]) -> Found:
    """Returns the numbers of a measured group that have one unit, as a group of their own."""
    return {
        **found,
        "name": name,
        "unit": unit,
        "better": better,
        "sides": {key: side for key, side in found["sides"].items() if key.endswith(ends)},
        "lines": [line for line in found["lines"] if line["side"].endswith(ends)],
    }


def asked(server: Server, seconds: float, clients: int, way: Way = ASKS) -> Sample:
    """Measures a server, whose clients are of this process."""
    return load(server.port, server.pid, clients, seconds, way)


def batch_of(server: Server, clients: int, way: Way = ASKS) -> float:
    """Returns how many requests a gateway answers together, by its heartbeat.

    The heartbeat has the mean of a whole report, in which no client may come or go.
    """
    asked(server, BATCH_SECONDS, clients, way)
    return server.batch


def servers_of(
    given: Given, stack: ExitStack, ours: Server, way: Way = ASKS
) -> dict[str, Callable[[int], Sample]]:
    """Starts the echoes beside a gateway; returns the measurement of each, of so many clients.

    Args:
        given: the command line.
        stack: closes the processes.
        ours: the gateway.
        way: of the requests; gRPC has those of CartPole.
    """
    echoed = stack.enter_context(process_of(echo))
    found: dict[str, Callable[[int], Sample]] = {
        "gateway": partial(asked, ours, given.seconds, way=way),
        "echo": partial(asked, echoed, given.seconds, way=replace(way, greets=False)),
    }
    if way is ASKS and "gRPC" not in given.left_out:
        grpc = stack.enter_context(process_of(grpc_echo))
        found["grpc"] = partial(measure_grpc, grpc, seconds=given.seconds)
    return found


def constant(values: Mapping[str, float]) -> Callable[[], Mapping[str, float]]:
    """Returns the rounds of a side that is not measured here."""
    return lambda: values


def answers(given: Given) -> list[Found]:
    """Measures latency and steps per second, and the latency of clients that think."""
    with ExitStack() as stack:
        ours = stack.enter_context(training(given.folder / "idle", [IDLE_LEARNER]))
        servers = servers_of(given, stack, ours)
        few = [number for number in COUNTS if number <= GRPC_MOST and "grpc" in servers]
        turn = Turn(servers, {"gateway": COUNTS, "echo": COUNTS, "grpc": few})
        sides = [
            Side(
                "gateway",
                "surreal_like",
                "decodes, acts in batches, records rows",
                turn.of("gateway"),
            ),
            Side("echo", "epoll echo", "the same bytes, nothing else", turn.of("echo")),
            Side("grpc", "gRPC streams", "an echo by grpcio, one stream a client", turn.of("grpc")),
            Side(
                "relaax",
                "RELAAX, published",
                "A3C over its bridge, m4.xlarge, 2017; not measured here",
                constant({f"{PUBLISHED} p50": 323.0, f"{PUBLISHED} steps": 99.0}),
            ),
        ]
        wanted = {(32, "p50"): "5 x, aim 3 x; 5 ms", (256, "p50"): "3 x, aim 2 x; 20 ms"}
        lines = []
        for end in ("p50", "p99", "steps"):
            for number in COUNTS if end != "p99" else (32, 256):
                key = f"{number} {end}"
                ours_, text = f"gateway {key}", wanted.get((number, end), "")
                what = f"{number} client{'s' * (number > 1)}{', p99' * (end == 'p99')}"
                lines.append(Line(what, ours_, (f"echo {key}",), text))
                others = [f"grpc {key}"] * (number in few)
                others += [f"relaax {key}"] * (number == PUBLISHED and end != "p99")
                if others:
                    lines.append(Line(what, ours_, tuple(others)))
        about = f"{NO_THINKING}. The gateway of a run whose learner waits."
        found = measure(Group("Answers", "", "", about, sides, lines), given.rounds)
        return [
            part(found, "Time to an answer", "milliseconds", "less", (" p50", " p99")),
            part(found, "Steps of all clients", "steps/s", "more", (" steps",)),
            paced(given, stack, ours),
        ]


def paced(given: Given, stack: ExitStack, ours: Server) -> Found:
    """Measures clients that ask 30 times a second."""
    longer = replace(given, seconds=max(1.0, given.seconds))
    servers = servers_of(longer, stack, ours, Way(pause=PACED_SECONDS))
    turn = Turn(servers, {"gateway": (32, 256), "echo": (32, 256)})
    sides = [
        Side("gateway", "surreal_like", "as above", turn.of("gateway")),
        Side("echo", "epoll echo", "as above", turn.of("echo")),
    ]
    wanted = {32: "3 ms, aim 1 ms", 256: "6 ms, aim 2 ms"}
    lines = [
        Line(f"{number} clients", f"gateway {number} p50", (f"echo {number} p50",), wanted[number])
        for number in (32, 256)
    ]
    about = "From the time at which a client wanted to ask, its own delay included."
    found = measure(Group("Paced", "", "", about, sides, lines), given.rounds)
    return part(found, "Clients that ask 30 times a second", "milliseconds", "less", (" p50",))


def cost(given: Given) -> list[Found]:
    """Measures the processor time per step of a gateway whose run trains."""
    with ExitStack() as stack:
        ours = stack.enter_context(training(given.folder / "training", []))
        layers = [torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU()]
        network = torch.nn.Sequential(*layers, torch.nn.Linear(64, 2))
        servers = servers_of(given, stack, ours)
        few = (32,) * ("grpc" in servers)
        servers = floored(servers, partial(batch_of, ours), network, (4,), torch.float32)
        turn = Turn(servers, {"gateway": TRAINED, "floor": (32, 256), "grpc": few})
        sides = [
            Side("gateway", "surreal_like", "training CartPole by DQN", turn.of("gateway")),
            Side("floor", "epoll echo + forward pass", "2 x 64, same mean batch", turn.of("floor")),
            Side("grpc", "gRPC streams", "an echo, without a policy", turn.of("grpc")),
        ]
        lines = [
            Line("32 clients", "gateway 32 cpu", ("floor 32 cpu",), "5 x, aim 3.5 x"),
            Line("32 clients", "gateway 32 cpu", ("grpc 32 cpu",), "0.35 x, aim 0.2 x"),
            Line("256 clients", "gateway 256 cpu", ("floor 256 cpu",), "4.5 x, aim 3 x"),
            Line("512 clients, to 32", "gateway 512 cpu", ("gateway 32 cpu",), "1.25 x"),
        ]
        about = f"{NO_THINKING}. The run trains as fast as it can."
        found = measure(Group("Cost", "", "", about, sides, lines), given.rounds)
        name = "Processor time of the server per step"
        return [part(found, name, "microseconds", "less", (" cpu",))]


def doors(given: Given) -> list[Found]:
    """Measures JSON, WebSocket and TLS, and sessions of many environments."""
    with ExitStack() as stack:

        def start(name: str, *words: str) -> Server:
            return stack.enter_context(training(given.folder / name, [IDLE_LEARNER, *words]))

        plain = start("plain")
        cert, key = certificate(given.folder)
        tls = start("tls", f"session_config.gateway.tls={{cert: {cert}, key: {key}}}")
        many = start("many", f"session_config.gateway.num_envs={STREAMS}")
        clients = 32

        def cpu(server: Server, door: str) -> float:
            return 1e6 * asked(server, given.seconds, clients, Way(door)).cpu_seconds

        names = {"frames": "binary frames", "websocket": "WebSocket", "json": "JSON", "tls": "TLS"}
        wanted = {
            "websocket": "1.4 x, aim 1.25 x",
            "json": "1.9 x, aim 1.6 x",
            "tls": "1.5 x, aim 1.3 x",
        }
        sides = [
            Side(
                name,
                label,
                "the same requests",
                partial(cpu, tls if name == "tls" else plain, name),
            )
            for name, label in names.items()
        ]
        lines = [Line(names[name], name, ("frames",), text) for name, text in wanted.items()]
        about = f"{clients} clients. The observation is an array in binary, a list in JSON."
        group = Group(
            "Doors", "microseconds of processor time per step", "less", about, sides, lines
        )

        def steps(server: Server, streams: int) -> float:
            obs = np.zeros((streams, 4) if streams > 1 else 4, np.float32)
            way = Way(observation=obs, streams=streams)
            return asked(server, given.seconds, 8, way).steps_per_second

        both = [
            Side(
                "many",
                "surreal_like",
                f"{STREAMS} environments a message",
                partial(steps, many, STREAMS),
            ),
            Side(
                "single",
                "one environment a message",
                "the same number of clients",
                partial(steps, plain, 1),
            ),
        ]
        line = [Line(f"{STREAMS} environments", "many", ("single",), "8 x, aim 15 x")]
        about = "8 clients without thinking time."
        wide = Group("Several environments in one message", "steps/s", "more", about, both, line)
        return [measure(group, given.rounds), measure(wide, given.rounds), idle(given, plain)]


def idle(given: Given, server: Server) -> Found:
    """Measures the memory of sessions that wait."""
    process = psutil.Process(server.pid)
    with ExitStack() as stack:

        def grown() -> float:
            before = process.memory_info().rss
            for _ in range(IDLE):
                each = Connection(server.port)
                stack.callback(each.leave, says_bye=True)
            return max(0.01, (process.memory_info().rss - before) / IDLE / 1024)

        side = Side("idle", "surreal_like", "after hello and reset", grown)
        lines = [Line(f"{IDLE} more sessions", "idle", (), "64, and their rows")]
        about = "Growth of the process per session."
        group = Group("Memory of an idle session", "KiB", "less", about, [side], lines)
        return measure(group, given.rounds)


def images(given: Given) -> list[Found]:
    """Measures large observations and the Nature CNN."""
    words = [
        "env_config.obs_spec={type: uint8, dim: [84, 84, 4]}",
        "learner_config.replay={capacity: 20_000, min_size: 20_000}",
        "learner_config.model={hidden_sizes: [], head_sizes: [512]}",
    ]
    with ExitStack() as stack:
        ours = stack.enter_context(training(given.folder / "images", words))
        network = torch.nn.Sequential(CNN(IMAGE), torch.nn.Linear(512, 2))
        way = Way(observation=np.zeros(IMAGE, np.uint8))
        batch = partial(batch_of, ours, way=way)
        servers = floored(servers_of(given, stack, ours, way), batch, network, IMAGE, torch.uint8)
        turn = Turn(servers, {"gateway": (16,), "floor": (16,)})
        sides = [
            Side("gateway", "surreal_like", "acts and records rows", turn.of("gateway")),
            Side("floor", "epoll echo + forward pass", "Nature CNN, same batch", turn.of("floor")),
        ]
        lines = [Line("16 clients", "gateway 16 cpu", ("floor 16 cpu",), "1.4 x, aim 1.15 x")]
        about = "84 x 84 x 4 bytes per step, whose learner waits."
        found = measure(Group("Images", "", "", about, sides, lines), given.rounds)
        unit = "microseconds of processor time per step"
        return [part(found, "Images", unit, "less", (" cpu",))]


GROUPS: Mapping[str, Callable[[Given], list[Found]]] = {
    "answers": answers,
    "cost": cost,
    "doors": doors,
    "images": images,
    "runs": runs,
}


def main() -> None:
    """Measures, prints the tables and writes the results."""
    torch.set_num_threads(1)
    with arguments(__doc__, seconds=0.4, rounds=7, parts=tuple(GROUPS), soaks=True) as given:
        if given.soak is not None:
            soak(given.folder, given.soak, given.clients)
            return
        try:
            given.versions["grpcio"] = metadata.version("grpcio")
        except metadata.PackageNotFoundError:
            given.left_out["gRPC"] = "grpcio is not installed"
        found = [group for part_ in given.parts for group in GROUPS[part_](given)]
        if len(given.parts) == len(GROUPS):
            keep("gateway", found, given.versions, given.left_out)
        else:
            print(tables({"groups": found}))


if __name__ == "__main__":
    main()
