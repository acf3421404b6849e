"""The asynchronous twin against a real server: the same methods, with the same answers."""

import asyncio
import inspect
from typing import Any

import pytest
from tests.api.served import ServedCluster

from muster.client import AsyncClient, Client, NotFound, Unreachable
from muster.client.exchange import exchange, stream
from muster.core.states import JobState

SMALL: dict[str, Any] = {"command": ["true"], "resources": {"cpu": "10m"}}


def described(kind: type) -> set[str]:
    """The public methods that a client of this kind has."""
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_both_clients_have_the_same_methods_with_the_same_documents() -> None:
    assert described(Client) == described(AsyncClient)
    shared = inspect.getattr_static(Client, "job"), inspect.getattr_static(Client, "logs")
    assert isinstance(shared[0], exchange)
    assert isinstance(shared[1], stream)
    assert inspect.getattr_static(AsyncClient, "job") is shared[0]
    assert (Client.job.__doc__ or "").startswith("One job")


async def test_job_is_submitted_awaited_and_cancelled(cluster: ServedCluster) -> None:
    async with AsyncClient(cluster.url, cluster.token()) as client:
        job = await client.submit(**SMALL, tasks=2)
        assert (await client.job(job.id)).name == job.name
        assert [task.index for task in (await client.tasks(job.id)).items] == [0, 1]
        waiting = asyncio.create_task(client.wait(job.id, 20.0))
        assert (await client.cancel(job.id)).changed
        assert (await waiting).state is JobState.KILLED
        with pytest.raises(NotFound):
            await client.cancel("nothing")


async def test_output_and_events_are_iterated(cluster: ServedCluster) -> None:
    async with AsyncClient(cluster.url, cluster.token()) as client:
        events = client.events()
        assert (await anext(events)).kind == "reset"
        job = await client.submit(**SMALL)
        kernel = (await client.task(job.id, 0)).kernel_id
        assert kernel is not None
        cluster.write(kernel, b"said", ended=True)
        await client.cancel(job.id)
        assert b"".join([piece async for piece in client.logs(job.id, follow=True)]) == b"said"
        with pytest.raises(NotFound):
            await anext(client.logs("nothing"))


async def test_nothing_that_answers_is_told() -> None:
    async with AsyncClient("http://127.0.0.1:9", "t") as client:
        with pytest.raises(Unreachable, match="nothing listens there"):
            await client.jobs()
