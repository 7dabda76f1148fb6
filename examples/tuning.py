"""A tuning from Python: `python examples/tuning.py`, with settings that replace the file's."""

import sys
from pathlib import Path

from surreal_like import load_policy, tune

if __name__ == "__main__":
    found = tune(Path(__file__).with_suffix(".yaml"), overrides=sys.argv[1:])
    for name, trial in found.trials.items():
        print(name, trial["state"], trial["score"], trial["settings"])
    if best := found.best:
        print("best:", best["trial"], best["score"])
        policy = load_policy(found.folder / best["path"], checkpoint="latest")
        action, _ = policy([0.0, 0.1, 0.0, -0.1])
        print("it acts:", action)
