"""One user fills the controller's disk: work with large specs, handed in and cancelled, without a
pause. Each part of the database that one user may fill has a bound for each owner."""

import secrets
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from tests.attacks.target import Target
from tests.patience import until

from muster.client import Client
from muster.core.errors import Conflict

ENV = {f"A{number}": secrets.token_hex(14_000) for number in range(32)}
"""Variables of 0.9 MB: nearly as much as a spec may have."""
MANY = 300
OPEN_BYTES = 24 << 20
"""The limit of a user's open specs."""
MOST_BYTES = 70 << 20
"""Of the database, without its log: the open specs, those of ended work, and everything else."""


def database_bytes(target: Target) -> int:
    return target.cluster.home.database.stat().st_size


def open_bytes(mallory: Client) -> int | None:
    """The bytes of specs of work that has not ended, as a user is told."""
    (own,) = mallory.quotas()
    assert own.open_specs is not None
    return own.open_specs.used


def job(mallory: Client) -> Any:
    return mallory.submit(command=["true"], env=ENV, resources={"cpu": 1_000})


def session(mallory: Client) -> Any:
    kernel = {"command": ["true"], "env": ENV, "resources": {"cpu": 1_000}}
    return mallory.submit({"kind": "session", "kernels": [kernel]})


def filled(mallory: Client, hand_in: Callable[[Client], Any]) -> list[str]:
    """The ids of what was handed in until it was refused."""
    ids: list[str] = []

    def hand_in_many() -> None:
        while len(ids) < MANY:
            ids.append(hand_in(mallory).id)

    with pytest.raises(Conflict, match=r"specs of work that has not ended: .* limit 24MiB"):
        hand_in_many()
    return ids


def test_waiting_work_with_large_specs_has_a_bound_and_gives_its_bytes_back(
    target: Target,
) -> None:
    with target.client("mallory") as mallory:
        for _ in range(2):  # the second time pages are used again
            ids = filled(mallory, job)
            assert 20 < len(ids) < OPEN_BYTES // len(str(ENV)) + 1
            for id_ in ids:
                mallory.cancel(id_)
            until(lambda: open_bytes(mallory) == 0)
            assert database_bytes(target) < MOST_BYTES
        first = mallory.job(ids[0])
        assert first.spec_cut is not None
        assert "ended work took more than 16MiB" in first.spec_cut.sentence
        with pytest.raises(Conflict, match="long values were removed from its spec"):
            mallory.retry(ids[0])
        assert mallory.job(ids[-1]).spec_cut is None


def test_sessions_with_large_specs_have_the_same_bound(target: Target) -> None:
    with target.client("mallory") as mallory:
        for id_ in filled(mallory, session):
            mallory.cancel(id_)
        assert database_bytes(target) < MOST_BYTES


def test_revisions_of_deployments_count_as_what_they_take(target: Target) -> None:
    """A deployment keeps revisions, each as large as a spec, and writes them with each change."""
    numbers = count()

    def deploy(mallory: Client) -> Any:
        number = next(numbers)
        spec = {
            "name": f"fat-{number // 5}",
            "command": ["true"],
            "replicas": 0,
            "env": ENV | {"R": str(number)},
        }
        return mallory.deploy(spec)

    with target.client("mallory") as mallory:
        made = set(filled(mallory, deploy))
        assert 3 < len(made) < 20
        for id_ in made:
            mallory.cancel(id_)
        until(lambda: open_bytes(mallory) == 0)
        assert database_bytes(target) < MOST_BYTES
