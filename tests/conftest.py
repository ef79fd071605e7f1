"""What many tests ask for: queues, a folder in memory, and how many examples hypothesis draws.

By default it draws the same ones each time, since a test that turns red must mean a change;
HYPOTHESIS_PROFILE=thorough asks for new and more ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from disk import Queues
from hypothesis import HealthCheck, settings

from eventq import WorkQueue

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]

settings.register_profile(
    "default",
    max_examples=150,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=SLOW,
)
settings.register_profile(
    "thorough",
    max_examples=1000,
    stateful_step_count=60,
    deadline=None,
    print_blob=True,
    suppress_health_check=SLOW,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def ram() -> Iterator[Path]:
    """A folder in memory, where the machine has one, for tests that sync nothing anyway."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture(params=["memory", "disk"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queues]:
    """Opens queues: each test that asks for it runs twice."""
    with Queues(request.param, tmp_path) as queues:
        yield queues


@pytest.fixture
def q(make: Queues) -> WorkQueue:
    """One of them."""
    return make()
