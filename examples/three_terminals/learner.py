from surreal_like import Config
from surreal_like.algorithm.dqn import DQNLearner as MyLearner

config = Config.load_file("run/config.yaml")
learner_config = config.learner_config
env_config = config.env_config
session_config = config.session_config

learner = MyLearner(
    learner_config=learner_config,
    env_config=env_config,
    session_config=session_config,
)

for i, batch in enumerate(learner.fetch_iterator()):
    learner.learn(batch)
    learner.publish_parameter(i, message="batch " + str(i))
