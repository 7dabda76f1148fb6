from surreal_like.addons.scripts.monitor import ConsoleMonitor as ConsoleMonitor
from surreal_like.addons.scripts.monitor import EvalTensorplexMonitor as EvalTensorplexMonitor
from surreal_like.addons.scripts.monitor import (
    TrainingTensorplexMonitor as TrainingTensorplexMonitor,
)
from surreal_like.env.environment import Env as Env
from surreal_like.env.environment import VectorEnv as VectorEnv
from surreal_like.env.environment import VectorWrapper as VectorWrapper
from surreal_like.env.environment import Wrapper as Wrapper
from surreal_like.env.frame_stack import FrameStack as FrameStack
from surreal_like.env.gym_adapter import GymAdapter as GymAdapter
from surreal_like.env.kinds import list_environments as list_environments
from surreal_like.env.registry import derive_specs as derive_specs
from surreal_like.env.registry import make_env as make_env
from surreal_like.env.vector import as_vector as as_vector
from surreal_like.env.vector import make_vector_env as make_vector_env

__all__: list[str]
