"""What is set up once in a learner's process: threads, seed, and how memory is kept."""

from __future__ import annotations

import torch

from session.allocator import keep_freed_memory


def set_up_process(*, threads: int, seed: int) -> None:
    """Sets torch's threads and seed, and keeps the memory that updates free."""
    keep_freed_memory()
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
