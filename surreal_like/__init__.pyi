"""Public names, and the modules that define them."""

from session.config import Config as Config
from session.config.defaults import BASE_ENV_CONFIG as BASE_ENV_CONFIG
from session.config.defaults import BASE_LEARNER_CONFIG as BASE_LEARNER_CONFIG
from session.config.defaults import BASE_SESSION_CONFIG as BASE_SESSION_CONFIG
from session.config.string_enum import StringEnum as StringEnum
from session.errors import ConfigError as ConfigError
from surreal_like.addons.analysis.evaluate import evaluate as evaluate
from surreal_like.addons.analysis.evaluate import evaluate_policy as evaluate_policy
from surreal_like.addons.analysis.play import play as play
from surreal_like.addons.analysis.plot import plot as plot
from surreal_like.addons.recording.episodes import Episode as Episode
from surreal_like.addons.recording.reader import Recording as Recording
from surreal_like.addons.recording.reader import load_recording as load_recording
from surreal_like.addons.recording.writer import RecordingWriter as RecordingWriter
from surreal_like.addons.scripts.algorithms import A3C as A3C
from surreal_like.addons.scripts.algorithms import BC as BC
from surreal_like.addons.scripts.algorithms import DDPG as DDPG
from surreal_like.addons.scripts.algorithms import DQN as DQN
from surreal_like.addons.scripts.algorithms import IQL as IQL
from surreal_like.addons.scripts.algorithms import PPO as PPO
from surreal_like.addons.scripts.algorithms import PQN as PQN
from surreal_like.addons.scripts.algorithms import R2D2 as R2D2
from surreal_like.addons.scripts.algorithms import SAC as SAC
from surreal_like.addons.scripts.algorithms import TD3 as TD3
from surreal_like.addons.scripts.algorithms import Impala as Impala
from surreal_like.addons.scripts.monitor import ConsoleMonitor as ConsoleMonitor
from surreal_like.addons.scripts.monitor import EvalTensorplexMonitor as EvalTensorplexMonitor
from surreal_like.addons.scripts.monitor import (
    TrainingTensorplexMonitor as TrainingTensorplexMonitor,
)
from surreal_like.addons.scripts.policy import load_policy as load_policy
from surreal_like.addons.scripts.policy import make_policy as make_policy
from surreal_like.addons.scripts.telemetry_clients import LoggerplexClient as LoggerplexClient
from surreal_like.addons.scripts.telemetry_clients import Telemetry as Telemetry
from surreal_like.addons.scripts.telemetry_clients import TensorplexClient as TensorplexClient
from surreal_like.addons.scripts.trainer import Trainer as Trainer
from surreal_like.addons.scripts.worker_set import RolloutWorker as RolloutWorker
from surreal_like.addons.scripts.worker_set import WorkerSet as WorkerSet
from surreal_like.addons.scripts.wrapper import ExpSenderWrapper as ExpSenderWrapper
from surreal_like.addons.tuning.start import tune as tune
from surreal_like.agent.agent import Agent as Agent
from surreal_like.agent.agent import AgentMode as AgentMode
from surreal_like.algorithm.algorithm import Algorithm as Algorithm
from surreal_like.algorithm.builder import build_algorithm as build_algorithm
from surreal_like.dataflow.items import Loss as Loss
from surreal_like.env.check import check_env as check_env
from surreal_like.env.environment import Env as Env
from surreal_like.env.environment import VectorEnv as VectorEnv
from surreal_like.env.environment import Wrapper as Wrapper
from surreal_like.env.frame_stack import FrameStack as FrameStack
from surreal_like.env.gym_adapter import GymAdapter as GymAdapter
from surreal_like.env.vector import make_vector_env as make_vector_env
from surreal_like.learner.learner import Learner as Learner
from surreal_like.network.flat import to_float_tensor as to_float_tensor
from surreal_like.network.flat import to_tensor as to_tensor
from surreal_like.network.module import Module as Module
from surreal_like.replay.kinds import FIFOReplay as FIFOReplay
from surreal_like.replay.kinds import PrioritizedReplay as PrioritizedReplay
from surreal_like.replay.kinds import UniformReplay as UniformReplay
from surreal_like.replay.replay import Replay as Replay
from surreal_like.replay.tuple_replay import ExpTuple as ExpTuple
from surreal_like.replay.tuple_replay import TupleReplay as TupleReplay
from surreal_like.run.train import launch as launch
from surreal_like.run.train import train as train

__version__: str

__all__: list[str]
