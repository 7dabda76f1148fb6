from surreal_like import (
    AgentMode,
    Config,
    ExpSenderWrapper,
    GymAdapter,
    TrainingTensorplexMonitor,
    to_float_tensor,
)
from surreal_like.algorithm.dqn import DQNAgent as MyAgent

config = Config.load_file("run/config.yaml")
learner_config = config.learner_config
env_config = config.env_config
session_config = config.session_config
agent_id = 0
agent_mode = AgentMode.training
env = GymAdapter(env_config.env_name)

env = ExpSenderWrapper(
    env,
    session_config=session_config,
)
env = TrainingTensorplexMonitor(
    env,
    agent_id=agent_id,
    session_config=session_config,
    separate_plots=True,
)

agent = MyAgent(
    learner_config=learner_config,
    env_config=env_config,
    session_config=session_config,
    agent_id=agent_id,
    agent_mode=agent_mode,
)

obs, info = env.reset()
while True:
    action = agent.act(to_float_tensor(obs))
    obs, reward, terminated, truncated, info = env.step(action)
    if terminated or truncated:
        obs, info = env.reset()
        agent.fetch_parameter()
