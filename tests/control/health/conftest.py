"""Wards that close themselves."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.control.health.ward import Ward

MakeWard: TypeAlias = Callable[..., Ward]


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[MakeWard]:
    """Makes wards of the arguments of ``Ward``."""
    with ExitStack() as stack:
        numbers = itertools.count()

        def make(machines: Sequence[str] = ("a",), **options: Any) -> Ward:
            path = tmp_path / f"ward-{next(numbers)}"
            return stack.enter_context(closing(Ward(path, machines, **options)))

        yield make
