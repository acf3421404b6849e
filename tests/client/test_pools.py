"""Pools and slices through both clients, against a real server."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.api.served import ADMIN, ServedCluster

from muster.client import AsyncClient, Client, InvalidSpec, NotFound
from muster.core.owner import Role
from muster.core.specs import PoolSpec
from muster.core.states.slice import SliceStatus

pytestmark = pytest.mark.usefixtures("many_cpus")

POOL: dict[str, Any] = {
    "kind": "pool",
    "name": "cpu",
    "provider": "local",
    "machine": {"cpu": 4, "memory": "1GiB"},
    "min_slices": 1,
    "max_slices": 2,
}


@pytest.fixture
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """A cluster without agents; machines of pools are up at once."""
    cluster = ServedCluster(tmp_path_factory.mktemp("pooled"), {})
    cluster.farm.boot_s = 0.0
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def admin(pooled: ServedCluster) -> Iterator[Client]:
    with pooled.client(ADMIN, Role.ADMIN) as client:
        yield client


def test_pool_is_applied_shown_paused_replaced_and_deleted(
    pooled: ServedCluster, admin: Client
) -> None:
    made = admin.apply_pool(POOL)
    assert (made.name, made.status) == ("cpu", "ACTIVE")
    assert admin.apply_pool(PoolSpec.model_validate({**POOL, "max_slices": 3})).id == made.id
    pooled.pass_time(5)
    (pool,) = admin.pools()
    assert pool.slices == {SliceStatus.READY: 1}
    assert admin.pools(group="default", name="c*") == [pool]
    assert admin.pools.show("cpu").spec["max_slices"] == 3
    assert admin.pause_pool("cpu").closed is not None
    assert admin.resume_pool(made.id).closed is None
    assert admin.replace_slices("cpu", at_a_time=3).replacing == 3
    assert admin.why("cpu").name == "cpu"
    assert admin.history("cpu").items[0].phase == "Setting"
    assert admin.delete_pool("cpu").id == made.id
    pooled.pass_time(20)
    assert admin.pools() == []
    assert [each.status for each in admin.pools("ended")] == ["DELETED"]


def test_wrong_pool_is_refused_with_its_problems_and_the_providers_objection(
    admin: Client,
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        admin.apply_pool({**POOL, "min_slices": 5, "slice_size": 0})
    assert [each.field for each in caught.value.problems] == ["slice_size"]
    huge = {**POOL, "machine": {"cpu": 4, "memory": "1024TiB"}}
    with pytest.raises(InvalidSpec, match="provider local says: bad request"):
        admin.apply_pool(huge)
    assert admin.pools() == []
    assert admin.apply_pool(huge, check=False).name == "cpu"


async def test_slices_are_held_released_drained_and_deleted(pooled: ServedCluster) -> None:
    async with AsyncClient(pooled.url, pooled.token(ADMIN, Role.ADMIN)) as client:
        await client.apply_pool({**POOL, "min_slices": 2})
        pooled.pass_time(5)
        first, second = await client.slices(pool="cpu")
        assert await client.slices(pool="other") == []
        assert (await client.hold_slice(first.id)).held_by == "root"
        assert (await client.release_slice(first.id)).held_by is None
        assert (await client.drain_slice(first.id, deadline="1h")).doomed is not None
        assert (await client.delete_slice(second.id)).doomed is not None
        assert (await client.slices.why(second.id)).subject == second.id
        (group,) = await client.autoscaler("default")
        assert (group.ended.slices, [each.name for each in group.pools]) == (2, ["cpu"])
        ended = await client.slices("ended")
        assert {first.id, second.id} == {each.id for each in ended}
        with pytest.raises(NotFound):
            await client.delete_slice(first.id)
