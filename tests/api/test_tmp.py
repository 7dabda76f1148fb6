def test_x(run, stage):
    print(run.result, run.exit_code)
    stage.start("ps", "replay-0", "learner", "agent-0", "eval-0")
    stage.until(lambda: stage.service("learner")._learner.iteration > 5)
