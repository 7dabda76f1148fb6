"""The plan of a run: its config and its components, before anything is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from session.config import Config
from session.process.component import Topology
from surreal_like.experiment.code import keep_code
from surreal_like.run.folder import held


@dataclass(frozen=True, slots=True)
class Plan:
    """The run that ``train`` would start.

    Args:
        config: the resolved experiment.
        topology: the components, in start order.
    """

    config: Config
    topology: Topology

    def write(self, path: Path) -> None:
        """Writes the run folder for components that are started by hand.

        Raises:
            UsageError: the folder is not empty.
        """
        # Not at the top: it imports ZeroMQ, which delays the start of a run in this process.
        from session.launchers.launcher import make_addresses, protect, write_run_files

        with held(path) as folder:
            self.config.session_config.folder = str(path)
            keep_code(self.config, folder)
            protect(folder, self.config)
            addresses = make_addresses(self.topology, self.config, folder)
            write_run_files(folder, self.topology, addresses)
            self.config.dump_file(folder.config)
