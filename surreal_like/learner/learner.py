"""Base class of the learners of all algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from session.config import Config
from session.config.named_code import find_plan
from session.errors import ConfigError
from surreal_like.data.batch import Batch
from surreal_like.dataflow.flow import NOT_READY, STALLED, Flow
from surreal_like.dataflow.items import Trained
from surreal_like.learner.metrics import summaries_of, thin
from surreal_like.learner.operators import learn_from, train_one_step
from surreal_like.learner.sources import experience
from surreal_like.learner.updates import Saveable, Updates
from surreal_like.network.files import load_parameters, save_parameters
from surreal_like.network.generators import Generator, generators_of


class Learner(Updates):
    """Learns from batches and publishes parameters.

    An algorithm overrides :meth:`loss` and, if needed, :meth:`execution_plan`, or :meth:`learn`
    instead of both; :meth:`module_dict`, :meth:`default_config` and, to support resuming,
    :meth:`saveables`.
    """

    _complete = False

    @classmethod
    def default_config(cls) -> Mapping[str, Any]:
        """Returns defaults for ``learner_config``, a Config or a dict; the agent's are added."""
        return Config({})

    def execution_plan(self) -> Flow:
        """Returns the dataflow of training, from a source of batches to the end of an update."""
        return experience(self).for_each(train_one_step(self))

    def learn(self, batch: Batch) -> Any:
        """Makes one update from a batch; returns metrics by name: numbers or 0-dimensional tensors.

        Gives the batch to the execution plan, and pulls until it is used. An algorithm may override
        it; the plan is then only this method.

        If it raises an exception, the batch is stored in the folder ``quarantine/`` of the run and
        skipped; the third in a row ends the run.

        The means over the last 100 updates are reported; of a whole number (``int``), which is a
        count, the newest value. An update counts as bad if ``skipped`` is not 0, or if
        the `loss` of an own `learn` is not finite; ten in a row end the run.
        """
        self.feed(batch, self.plan)
        updates = self.pop_updates()
        self.updates_made = len(updates)
        # Several only where a plan trains in several branches; the newest is reported.
        return updates[-1].metrics if updates else {}

    @classmethod
    def uses_loss(cls) -> bool:
        """Returns False if the class has a plan, but no loss: its plan has losses of its own."""
        return cls.loss is not Updates.loss or cls.execution_plan is Learner.execution_plan

    def feed(self, batch: Batch, flow: Flow) -> bool:
        """Pulls a flow until its source has taken this batch instead of one of replay.

        Returns:
            False if it is stalled before, and so for ever.
        """
        self._given = [batch]
        try:
            while self._given:
                item = flow.pull()
                if item is NOT_READY or item is STALLED:
                    return item is not STALLED
            return True
        finally:
            self._given = None

    @cached_property
    def flow(self) -> Flow:
        """The dataflow of this learner: the plan, or batches for a `learn` of its own.

        With a plan over several policies it is that of all learners.

        Raises:
            ConfigError: the plan is no Flow.
        """
        if not self.learns_itself():
            return self.plan
        self.complete()
        return self._name(experience(self).for_each(learn_from(self, self.learn)))

    @cached_property
    def plan(self) -> Flow:
        """The execution plan, built at its first use.

        Raises:
            ConfigError: it is no Flow, or it calls itself.
        """
        self.complete()
        place = self.learner_config.get("execution_plan")
        build = type(self).execution_plan if place is None else find_plan(place)
        try:
            return self._name(build(self))
        except RecursionError:
            raise ConfigError(
                f"the execution plan of {type(self).__name__} calls itself, as "
                "learner.execution_plan(); if DQN is the base, write "
                "DQN.learner.execution_plan(learner)"
            ) from None

    @classmethod
    def learns_itself(cls) -> bool:
        """True if a class overrides `learn` without a plan of its own."""
        first = next(
            kind for kind in cls.__mro__ if {"learn", "execution_plan"} & vars(kind).keys()
        )
        return first is not Learner and "execution_plan" not in vars(first)

    def _name(self, flow: object) -> Flow:
        name = type(self).__name__
        if not isinstance(flow, Flow):
            raise ConfigError(
                f"the execution plan of {name} is a {type(flow).__name__}, expected a Flow"
            )
        flow.name_plan(name.removesuffix("Learner"))
        return flow

    def complete(self) -> None:
        """Calls :meth:`after_init` once."""
        if not self._complete:
            self._complete = True
            self.after_init()
            if self._frozen:
                from surreal_like.network.parts import check_parts, list_parts

                known = list_parts(self._freeze(*self.module_dict().values()))
                check_parts(self._frozen, known, "learner_config.model.frozen")

    def after_init(self) -> None:
        """Called when the learner is complete, before its plan is built."""

    def saveables(self) -> Mapping[str, Saveable]:
        """Returns name -> state that a resumed run needs in addition to the published modules.

        Here they are the optimizers of :meth:`add_optimizer`.
        """
        return dict(self.optimizers.saveables())

    def checkpointed(self) -> dict[str, Saveable]:
        """Returns name -> state of all that a checkpoint has beside the published modules.

        These are the :meth:`saveables`, and the states of operators of the plan.

        Raises:
            ConfigError: a value has no `state_dict` or no `load_state_dict`.
        """
        # The plan is built first: its operators add their states.
        _ = self.flow
        found = {**self.saveables(), **self._kept}
        for name, each in found.items():
            if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
                raise ConfigError(
                    f"saveables() of {type(self).__name__} has '{name}' of class "
                    f"{type(each).__name__}, expected an object with state_dict() and "
                    "load_state_dict(state)"
                )
        return found

    def checkpointed_generators(self) -> dict[str, Generator]:
        """Returns the random generators whose states a checkpoint has, by name.

        They are all among the attributes (`torch.Generator`, `numpy.random.Generator`,
        `random.Random`), and those of operators of the plan.
        """
        of_plan = self.flow.generators()  # first: it makes the learner complete
        return {**generators_of(self), **of_plan}

    def save(self, file_path: str | Path) -> None:
        """Writes the published parameters to a file in safetensors format."""
        save_parameters(self.module_dict(), file_path)

    def load(self, file_path: str | Path) -> None:
        """Reads a file of :meth:`save`.

        Raises:
            CheckpointError: the file cannot be read.
            SpecError: its tensors do not fit these modules.
        """
        load_parameters(self.module_dict(), file_path)

    @property
    def run_steps(self) -> int:
        """Environment steps of the whole run, as far as known."""
        return self.env_steps

    def fetch_iterator(self) -> Iterator[Batch]:
        """Yields batches endlessly, for a script; learn from each before requesting the next.

        The memory of a batch may be reused for the next: copy what has to be kept.

        Ends when the process receives a stop request.
        """
        yield from experience(self)

    def publish_parameter(
        self, iteration: int, message: str = "", *, final: bool = False, at_once: bool = False
    ) -> bool:
        """Publishes the current parameters, at most as often as the config allows.

        A publication before the end of ``parameter_publish.min_publish_interval`` is postponed: it
        is made later, with the weights of that time. In training iterations with synchronous agents
        it is made after the last batch of each.

        Args:
            iteration: number of updates of the parameters.
            message: text for ``fetch_parameter_info``.
            final: the run is over; publishes at once.
            at_once: publishes even if the config does not allow it yet.

        Returns:
            True if they were published.
        """
        self.iteration = iteration
        return self.link.publish(self, iteration, message, final=final, at_once=at_once)

    def summaries(self, update: Trained) -> dict[str, torch.Tensor]:
        """Returns tensors by tag, whose histograms are reported after an update.

        Here they are the parameters and gradients of all modules among the attributes, and the
        columns of the batch. An algorithm may add to them. Called every
        ``session_config.tensorplex.debug_summaries`` updates.
        """
        return summaries_of(vars(self), update)

    def report_summaries(self, update: Trained) -> None:
        """Reports the histograms of :meth:`summaries`.

        Raises:
            UsageError: a tag or a tensor is invalid.
        """
        for tag, tensor in self.summaries(update).items():
            self.tensorplex.add_histogram(tag, thin(tensor), self.env_steps)
