from surreal_like import Config
from surreal_like import UniformReplay as MyReplay

config = Config.load_file("run/config.yaml")
learner_config = config.learner_config
env_config = config.env_config
session_config = config.session_config

replay = MyReplay(
    learner_config=learner_config,
    env_config=env_config,
    session_config=session_config,
)
replay.start_threads()
