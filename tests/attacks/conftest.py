"""One cluster for all attacks; what each of them must leave unharmed is looked at after it."""

from collections.abc import Iterator

import pytest
from tests.attacks.target import Target, under_attack


@pytest.fixture(scope="package")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The cluster under attack; at the end its bystander was served in time throughout."""
    with under_attack(tmp_path_factory.mktemp("attacks")) as target:
        yield target
        target.assert_served()


@pytest.fixture(autouse=True)
def _bystander_is_unharmed(target: Target) -> Iterator[None]:
    before = len(target.probes())
    yield
    target.assert_unharmed(before)
