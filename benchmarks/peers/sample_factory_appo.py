"""Sample Factory's APPO on CartPole-v1 or Pong, with the settings of its own examples.

python sample_factory_appo.py SEED STARTED SECONDS cartpole|cartpole_rate|pong [--option=value ...]

STARTED: when the process was started, seconds since 1970. Options are those of Sample Factory and
go before its examples' settings.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import gymnasium
import numpy as np
import torch
from clock import Clock
from pong import Pong
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.actor_critic import create_actor_critic
from sample_factory.model.model_utils import get_rnn_size
from sample_factory.train import make_runner
from sf_examples.atari.atari_params import atari_override_defaults
from signal_slot.signal_slot import EventLoopObject, Timer

LOOK_SECONDS = 0.1
# The command line of its example train_gym_env, for CartPole-v1.
CARTPOLE = {
    "use_rnn": False,
    "num_envs_per_worker": 20,
    "policy_workers_per_policy": 2,
    "recurrence": 1,
    "with_vtrace": False,
    "batch_size": 512,
    "reward_scale": 0.1,
}
OURS = {
    "algo": "APPO",
    "device": "cpu",
    "experiment": "run",
    "restart_behavior": "overwrite",
    "num_workers": 2,
    "train_for_env_steps": 10**9,
}


class Watch(EventLoopObject, AlgoObserver):  # type: ignore[misc]
    """Looks at the runner from time to time, and ends it.

    Args:
        runner: not yet initialised.
        clock: says when it is over.
    """

    def __init__(self, runner: Any, clock: Clock) -> None:
        EventLoopObject.__init__(self, runner.event_loop, object_id="watch")
        self._runner, self._clock = runner, clock
        self._shared: Any = None
        self._network: Any = None
        self._reported = False
        self._timer = Timer(runner.event_loop, LOOK_SECONDS)
        self._timer.timeout.connect(self.look)

    def on_connect_components(self, runner: Any) -> None:
        """The learner tells where in shared memory its weights are."""
        runner.learners[0].model_initialized.connect(self.on_model)

    def on_model(self, message: Any) -> None:
        """Makes a network of the same shape, to be played with."""
        self._shared = message[1]
        runner = self._runner
        info = runner.env_info
        self._network = create_actor_critic(runner.cfg, info.obs_space, info.action_space)
        self._network.eval()

    def look(self) -> None:
        """Hands on how far it is."""
        runner, clock = self._runner, self._clock
        env_steps = runner.env_steps.get(0, 0)
        # A return of CartPole is the length of its episode; returns are scaled here.
        lengths = runner.policy_avg_stats.get("len", [[]])[0]
        if self._network is not None and env_steps and clock.plays:
            self._network.load_state_dict(self._shared)
        if not self._reported and clock.over(env_steps, lengths, self.act):
            self._reported = True
            self._timer.stop()
            # Now: it may take longer to end than the others take to learn.
            clock.report()
            runner._stop_training()

    @torch.no_grad()
    def act(self, obs: Any) -> Any:
        """Greedy actions ``[N]``."""
        network = self._network
        states = torch.zeros(len(obs), get_rnn_size(self._runner.cfg))
        seen = network.normalize_obs({"obs": torch.from_numpy(np.asarray(obs, np.float32))})
        logits = network(seen, states)["action_logits"]
        return logits.argmax(1).numpy()


def make_env(name: str, cfg: Any = None, env_config: Any = None, render_mode: Any = None) -> Any:
    """One environment."""
    return gymnasium.make(name) if name == "CartPole-v1" else Pong()


def config(env: str, seed: int, folder: str, options: list[str]) -> Any:
    """Its settings: what is asked for, else those of its example, else its defaults."""
    name = "atari_pong" if env == "pong" else "CartPole-v1"
    register_env(name, make_env)
    settings = {**OURS, **({} if env == "pong" else CARTPOLE), "env": name, "seed": seed}
    words = [f"--{key}={value}" for key, value in {**settings, "train_dir": folder}.items()]
    parser, _ = parse_sf_args([*words, *options])
    if env == "pong":
        atari_override_defaults(name, parser)
    return parse_full_cfg(parser, [*words, *options])


def main(seed: int, started: float, seconds: float, env: str, options: list[str]) -> None:
    """Trains until the clock says that it is over."""
    clock = Clock(seed, started, seconds, plays=env == "cartpole")
    with tempfile.TemporaryDirectory(prefix="sl-bench-") as folder:
        _, runner = make_runner(config(env, seed, folder, options))
        runner.register_observer(Watch(runner, clock))
        runner.init()
        runner.run()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4], sys.argv[5:])
