# make train shows a run, make learn all of them, make test decides about a change.
#
# PYTHON  the interpreter to build the environment with; PyTorch, where it already has it, is kept
# VENV    the virtual environment to use; an existing one is taken as it is, with its PyTorch
# WORKERS processes that share the tests; by default 4 for 2 cores, 3 for the slow ones
# ARGS    more words for `surreal-like train`, for pytest, or for each benchmark
# BENCH   the benchmarks to run, files in benchmarks/ without .py

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
WORKERS ?=
BIN = $(VENV)/bin
PACKAGES := session surreal_like main
CHECKED := $(PACKAGES) $(wildcard tests benchmarks examples)
# The data plane, in about ten minutes. Whole runs and the like: by name.
BENCH ?= storage replay parameters scale actor

.PHONY: help train learn learn-multi trained zoo test test-all test-lowest chaos lint format docs address wheel bench image
.PHONY: cluster-test kind-test manifests clean

help:
	@echo 'make train     CartPole, solved by cooperating processes; sets up $(VENV) first if need be'
	@echo 'make learn     what the shipped experiments learn and how fast, over three seeds: ten minutes to half an hour'
	@echo 'make learn-multi  the same of several agents; runs that are kept are not repeated'
	@echo 'make trained NAME=...  learns a shipped experiment again, and puts it among the trained policies'
	@echo 'make zoo       plays 1,000 episodes of each trained policy, and compares them with its card'
	@echo 'make test      what decides about a change: ruff, mypy, all tests but the slow ones and those that need root, kubectl or Chromium'
	@echo 'make test-all  the same with the slow tests, more environments, and those that need root, kubectl or Chromium'
	@echo 'make test-lowest  the tests of make test with the lowest versions that setup.py allows'
	@echo 'make chaos     27 faults and what they did to runs, as one table with the times of recovery: twenty minutes'
	@echo 'make cluster-test  whole runs on the cluster that KUBECONFIG names, else on Kubernetes, Slurm and Ray here'
	@echo 'make lint      ruff and mypy only          make format  let ruff write the files'
	@echo 'make docs      the documentation as a site with search, site/index.html; a broken link is an error'
	@echo 'make wheel     source archive and wheel in dist/, and a short run of the wheel in an environment of its own'
	@echo 'make address   write the address of the repository, URL in setup.py, into the files that show it'
	@echo 'make bench     the data plane and its peers        make clean   remove caches and builds, not runs or $(VENV)'
	@echo 'make image     the image of all pods: IMAGE=name:tag TARGET=cpu|cuda IMAGE_EXTRAS=atari IMAGE_PACKAGES=...'
	@echo 'make kind-test cluster-test on a cluster in containers, made by kind with that image and removed afterwards'
	@echo 'make manifests write the overlays of k8s/ anew from configs/, and each in one file'

train: $(VENV)/.installed
	@$(BIN)/surreal-like train configs/cartpole_dqn.yaml $(ARGS)

learn: $(VENV)/.installed
	@$(BIN)/python benchmarks/learn.py $(ARGS)

learn-multi: $(VENV)/.installed
	@$(BIN)/python benchmarks/learn.py --group learn_multi --resume $(ARGS)

trained: $(VENV)/.installed
	@$(BIN)/python benchmarks/zoo.py $(NAME) $(ARGS)

zoo: $(VENV)/.installed
	@$(BIN)/python benchmarks/zoo.py --check score $(ARGS)

# A test file stays in one worker: what its tests share is started once. Files keep their order:
# the last ones are short, so that all workers end at about the same time.
# Bytecode is kept: else each of many processes would compile all modules anew.
# A worker that dies leaves its last words: its stack, and what a library wrote to standard error.
TESTS_PYTHON = env -u PYTHONDONTWRITEBYTECODE PYTHONFAULTHANDLER=1 $(BIN)/python
SHARED = -n $(or $(WORKERS),$(SHARED_BY)) --dist loadfile --no-loadscope-reorder --capture=sys
PYTEST = $(TESTS_PYTHON) -m pytest $(SHARED)

# Half of the time of quick tests is waiting; slow ones start whole runs, which use what there is.
SHARED_BY = $(shell getconf _NPROCESSORS_ONLN)
test: SHARED_BY = $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 2)

QUICK = $(PYTEST) -m 'not slow and not root and not kubectl and not chromium' --durations=10 $(ARGS)

test: lint
	$(QUICK)

# Without whole clusters, which take the two cores from all others. First those that need both.
test-all: lint $(VENV)/.installed-environments
	$(TESTS_PYTHON) -m pytest -m alone $(ARGS) || [ $$? = 5 ]  # ARGS may leave none of them
	$(PYTEST) -m 'not alone and not cluster and not slurm and not ray' --durations=25 $(ARGS)

chaos: $(VENV)/.installed-dev
	$(TESTS_PYTHON) -m tests.run_scenarios $(SHARED) $(ARGS)

# What the versions' types say is for the newest ones: no mypy here.
test-lowest: VENV = .venv-lowest
test-lowest: .venv-lowest/.installed
	$(QUICK)

.venv-lowest/.installed: setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(QUIET) uv
	$(BIN)/uv pip install --python $(BIN)/python --resolution lowest-direct -e '.[all,dev]'
	@touch $@

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict $(CHECKED)

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-docs
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs site
	@echo site/index.html

address:
	$(PYTHON) docs/address.py

# The environment lies in dist/, so that nothing of this one is seen but a PyTorch of PYTHON.
wheel: $(VENV)/.installed
	rm -rf build dist
	$(BIN)/python -c 'from setuptools.build_meta import build_sdist; build_sdist("dist")'
	$(BIN)/python -m pip wheel $(QUIET) --no-deps --wheel-dir dist dist/*.tar.gz
	$(MAKE) VENV=dist/venv WHAT="$$(echo dist/*.whl)" dist/venv/.installed
	cd dist && venv/bin/surreal-like train cartpole_dqn --folder run 'session_config.stop={iterations: 5}'
	cd dist && venv/bin/surreal-like evaluate cartpole_dqn --trained --episodes 20

bench: $(VENV)/.installed
	@set -e; for name in $(BENCH); do $(BIN)/python benchmarks/$$name.py $(ARGS); done

# -- Kubernetes ----------------------------------------------------------------------------------

DOCKER ?= docker
TARGET ?= cpu
IMAGE ?= surreal-like:$(TARGET)
URL = $(shell sed -n 's/^URL = "\(.*\)".*/\1/p' setup.py)
VERSION = $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' session/version.py)
LABEL := --label org.opencontainers.image

image:
	$(DOCKER) build --file k8s/Dockerfile --target $(TARGET) --tag $(IMAGE) \
	  $(LABEL).version=$(VERSION) $(LABEL).revision=$$(git rev-parse HEAD || echo unknown) \
	  $(if $(URL),$(LABEL).source=$(URL)) \
	  --build-arg EXTRAS='$(IMAGE_EXTRAS)' --build-arg PACKAGES='$(IMAGE_PACKAGES)' \
	  --build-arg TORCH_INDEX='$(TORCH_INDEX)' .

# Without KUBECONFIG a real control plane is built and kept, and the pods are processes of this machine,
# as are the nodes of Slurm and Ray, where these are installed; IMAGE is for a cluster with own nodes.
OWN_CLUSTERS = $(addprefix tests/addons/,kubernetes slurm ray)
ON_CLUSTERS = $(if $(KUBECONFIG),tests/addons/kubernetes/test_cluster.py,$(OWN_CLUSTERS))

cluster-test: $(VENV)/.installed-dev
	@$(if $(KUBECONFIG),true,$(BIN)/python -m tests.addons.kubernetes.build_control_plane)
	SURREAL_LIKE_TEST_CLUSTER='$(KUBECONFIG)' SURREAL_LIKE_TEST_IMAGE='$(IMAGE)' \
	  $(TESTS_PYTHON) -m pytest -m 'cluster or slurm or ray' --capture=sys --durations=10 $(ON_CLUSTERS) $(ARGS)

KIND ?= kind
KIND_CLUSTER := surreal-like-test

# The file of the cluster's address lies beside those of other clusters, and is removed with it.
kind-test: image
	set -e; config=$$(mktemp); trap '$(KIND) delete cluster --name $(KIND_CLUSTER); rm -f '$$config EXIT; \
	$(KIND) create cluster --name $(KIND_CLUSTER) --kubeconfig $$config --wait 120s; \
	$(KIND) load docker-image $(IMAGE) --name $(KIND_CLUSTER); \
	$(MAKE) cluster-test KUBECONFIG=$$config

# A cluster has more time and more agents than the desk for which the experiment was written.
ON_CLUSTER := session_config.stop.seconds=3600 session_config.resources.agent.cpu=0.5

manifests: $(VENV)/.installed
	$(BIN)/surreal-like plan configs/cartpole_dqn.yaml --on kubernetes --folder k8s/overlays/cartpole \
	  session_config.stop.env_steps=4_000_000 $(ON_CLUSTER)
	$(BIN)/surreal-like plan configs/cartpole_dqn.yaml --on kubernetes --folder k8s/overlays/cartpole-64 \
	  --agents 64 --evals 2 learner_config.replay.replay_shards=2 \
	  session_config.kubernetes.prefer_spot=true \
	  session_config.stop.env_steps=20_000_000 $(ON_CLUSTER)

clean:
	rm -rf build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(CHECKED) -type d -name __pycache__ -prune -exec rm -rf {} +

# -- the environment -----------------------------------------------------------------------------

define OLD_PYTHON
surreal_like needs Python 3.11 or newer. Name one: make PYTHON=python3.12 ...
endef

define NO_VENV
This Python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv
endef

define NO_TORCH
PyTorch is not in $(VENV) yet, so pip installs it now.
On Linux, unless pip is set up to find PyTorch's CPU build, that fetches about 2.6 GB of CUDA packages.
Without an NVIDIA GPU you do not need them. To install the CPU build first: press Ctrl-C, run
    $(BIN)/python -m pip install torch==$(TORCH_PIN) ...
with the rest of the line as the selector on pytorch.org gives it for Linux, Pip, Python, CPU,
and start this command again.
endef

TORCH_PIN := $(shell sed -n 's/^torch==//p' constraints.txt)

# The answer is the exit code: is there a PyTorch, without importing it?
HAS_TORCH := -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'

# pip comes last: an environment that was interrupted while it was made is made again.
$(BIN)/pip: export OLD_PYTHON_NOTE = $(OLD_PYTHON)
$(BIN)/pip: export NO_VENV_NOTE = $(NO_VENV)
$(BIN)/pip:
	@$(PYTHON) -c '' || { echo "$(PYTHON) does not run here. Name a Python: make PYTHON=python3 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$$OLD_PYTHON_NOTE" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$$NO_VENV_NOTE" >&2; exit 1; }
	@site=; if $(PYTHON) $(HAS_TORCH); then site=--system-site-packages; fi; \
	echo "$(PYTHON) -m venv $$site $(VENV)"; $(PYTHON) -m venv $$site $(VENV)

# A PyTorch that is there already stays, whatever its version: its pin is left out.
# On a terminal the note stays for ten seconds, time enough to stop a download.
define INSTALL
@if $(BIN)/python $(HAS_TORCH); then grep -v '^torch==' constraints.txt > $(VENV)/pins.txt; else \
	cp constraints.txt $(VENV)/pins.txt; \
	if [ "$$(uname -s)" = Linux ] && [ ! -e /dev/nvidiactl ]; then \
		echo "$$NO_TORCH_NOTE"; if [ -t 0 ] && [ -t 1 ]; then sleep 10; fi; \
	fi; \
fi
$(BIN)/python -m pip install --disable-pip-version-check $(QUIET) -c $(VENV)/pins.txt $(WHAT)
endef

$(VENV)/.installed $(addprefix $(VENV)/.installed-,dev docs environments): export NO_TORCH_NOTE = $(NO_TORCH)

QUIET := $(if $(CI),--quiet,)
WHAT = -e '.$(EXTRAS)'

$(VENV)/.installed: setup.py constraints.txt | $(BIN)/pip
	$(INSTALL)
	@touch $@

$(VENV)/.installed-dev: EXTRAS = [all,dev]
$(VENV)/.installed-docs: EXTRAS = [docs]
$(VENV)/.installed-environments: EXTRAS = [all,dev,docs,environments,envpool,offline,wandb,mlflow]
$(addprefix $(VENV)/.installed-,dev docs environments): setup.py constraints.txt | $(BIN)/pip
	$(INSTALL)
	@touch $(VENV)/.installed $@
