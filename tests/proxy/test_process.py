"""The proxy's process beside a controller that comes and goes."""

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec
import pytest
from tests.client.authority import certificate
from tests.patience import until_awaited
from tests.proxy.around import (
    ANN,
    CALLERS,
    Backend,
    Request,
    authorise,
    ends_at_once,
    saying,
    service,
)

from muster.app.proxy_config import ProxyConfig, dump_proxy, load_proxy
from muster.core.serving.traffic import LoadReport, TrafficService, TrafficView
from muster.proxy.controller import Controller, NoController
from muster.proxy.proxy import Proxy
from muster.wire.transport import ServerTls

TOKEN = "the proxy's own"


@dataclass
class FakeController:
    """The three endpoints that a proxy asks."""

    view: TrafficView = field(default_factory=lambda: TrafficView(version=1))
    reports: list[LoadReport] = field(default_factory=list)
    refuses_reports: bool = False
    asked_for_traffic: int = 0
    identified: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, *services: TrafficService) -> None:
        self.view = TrafficView(version=self.view.version + 1, services=services)
        self.changed.set()
        self.changed = asyncio.Event()

    async def respond(self, request: Request, writer: asyncio.StreamWriter) -> None:
        assert request["authorization"] == f"Bearer {TOKEN}"
        method, path, _ = request.line.split()
        body: object = None
        if path == "/v1/traffic/identify":
            self.identified += 1
            body = CALLERS.get(json.loads(request.body)["token"])
        elif path == "/v1/traffic/load":
            self.reports.append(msgspec.json.decode(request.body, type=LoadReport))
            if self.refuses_reports:
                writer.write(b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n")
                return
        else:
            assert (method, path.partition("?")[0]) == ("GET", "/v1/traffic")
            self.asked_for_traffic += 1
            if path.endswith(f"since={self.view.version}"):
                await self.changed.wait()
            body = self.view
        content = msgspec.json.encode(body)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))


@asynccontextmanager
async def proxy_process(config: ProxyConfig) -> AsyncIterator[int]:
    """A proxy as a process, and its port."""
    running = config.directory / "proxy.json"
    running.unlink(missing_ok=True)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "muster.app.proxy_process", stdin=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(dump_proxy(config).encode())
    process.stdin.close()
    try:
        await until_awaited(lambda: running.exists() or process.returncode is not None)
        port: int = json.loads(running.read_text())["port"]
        yield port
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until_it_is(wanted: int, status: Callable[[], Awaitable[int]]) -> None:
    async with asyncio.timeout(10):
        while (found := await status()) != wanted:
            assert found in (401, 404, 503), "as long as the service is not known"
            await asyncio.sleep(0.02)


def config_in(path: Path, api: Backend, tls: ServerTls | None = None) -> ProxyConfig:
    file = path / "controller.json"
    file.write_text(json.dumps({"url": f"http://127.0.0.1:{api.port}", "token": TOKEN}))
    return ProxyConfig(path / "proxy", file, port=0, tls=tls)


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    tls = ServerTls(tmp_path / "a", tmp_path / "b")
    for config in (
        ProxyConfig(tmp_path, tmp_path / "c"),
        ProxyConfig(tmp_path, tmp_path / "c", "::1", 1, tls, True, 5),
    ):
        assert load_proxy(dump_proxy(config)) == config


async def test_traffic_survives_the_end_of_the_controller_and_of_the_proxy(tmp_path: Path) -> None:
    fake = FakeController()
    async with Backend(saying("hello")).running() as web, httpx.AsyncClient() as client:

        async def status(port: int, name: str) -> int:
            headers = {"Authorization": f"Bearer {ANN}"}
            url = f"http://127.0.0.1:{port}/{name}/"
            return (await client.get(url, headers=headers)).status_code

        async with Backend(fake.respond).running() as api:
            config, api_port = config_in(tmp_path, api), api.port
            fake.set(service(web.target()), service(web.target(), name="own", public=False))
            async with proxy_process(config) as port:
                await until_it_is(200, lambda: status(port, "web"))
                assert [await status(port, "own") for _ in range(5)] == [200] * 5
                assert fake.identified == 1
        async with proxy_process(config) as port:  # the controller is away
            assert await status(port, "web") == 200
            assert await status(port, "own") == 503, "nobody can tell whose the token is"
            assert (config.directory / "services.json").stat().st_mode & 0o077 == 0
            fake.set(service(web.target(), name="late"))
            async with Backend(fake.respond).running(api_port):
                await until_it_is(200, lambda: status(port, "late"))


async def test_load_is_told_each_second_and_a_wait_for_a_replica_at_once(tmp_path: Path) -> None:
    fake = FakeController()
    async with (
        Backend(saying("hello")).running() as web,
        Backend(fake.respond).running() as api,
        httpx.AsyncClient() as client,
        proxy_process(config_in(tmp_path, api)) as port,
    ):
        fake.set(service(holds=True))
        await until_awaited(lambda: fake.reports and fake.reports[-1].services)
        loop, seen = asyncio.get_running_loop(), len(fake.reports)
        asked = asyncio.create_task(client.get(f"http://127.0.0.1:{port}/web/"))
        began_s = loop.time()
        await until_awaited(lambda: any(each.services[0].held for each in fake.reports[seen:]))
        assert loop.time() - began_s < 0.5, "before the next second's report"
        fake.set(service(web.target(), holds=True))
        assert (await asked).text == "hello"
        await until_awaited(
            lambda: any(load.requests for load in fake.reports[-1].services[0].routes)
        )
    (load,) = fake.reports[-1].services[0].routes
    assert (load.route, load.requests, load.failures, sum(load.latencies)) == ("r1", 1, 0, 1)


async def test_report_that_is_refused_ends_no_other_question(tmp_path: Path) -> None:
    fake = FakeController(refuses_reports=True)
    async with Backend(fake.respond).running() as api:
        controller, proxy = Controller(config_in(tmp_path, api).controller), Proxy("p", authorise)
        asked = asyncio.create_task(controller.traffic(fake.view.version))
        await until_awaited(lambda: fake.asked_for_traffic)
        with pytest.raises(NoController):
            await controller.report(proxy)
        fake.set(service())
        found = await asked
        assert found is not None
        assert found.version == fake.view.version
        await controller.close()


async def test_controller_that_has_moved_is_found_after_a_failure(tmp_path: Path) -> None:
    fake = FakeController()
    async with Backend(fake.respond).running() as former, Backend(fake.respond).running() as api:
        controller = Controller(config_in(tmp_path, former).controller)
        assert await controller.identify(ANN) == CALLERS[ANN]
        for writer in former.writers:
            writer.close()
        config_in(tmp_path, api)
        former.respond = ends_at_once
        with pytest.raises(NoController):
            await controller.identify(ANN)
        assert await controller.identify(ANN) == CALLERS[ANN]
        assert len(api.requests) == 1
        await controller.close()


async def test_clients_come_by_tls(tmp_path: Path) -> None:
    tls = certificate(tmp_path, "localhost")
    fake = FakeController()
    async with Backend(saying("hello")).running() as web, Backend(fake.respond).running() as api:
        fake.set(service(web.target()))
        trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        async with (
            proxy_process(config_in(tmp_path, api, tls)) as port,
            httpx.AsyncClient(verify=trusting) as client,
        ):

            async def status() -> int:
                return (await client.get(f"https://localhost:{port}/web/")).status_code

            await until_it_is(200, status)
    assert web.requests[0]["x-forwarded-proto"] == "https"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_address_that_others_reach_needs_tls(tmp_path: Path, host: str) -> None:
    config = ProxyConfig(tmp_path, tmp_path / "none", host=host, port=0)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "muster.app.proxy_process",
        stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await process.communicate(dump_proxy(config).encode())
    assert process.returncode == 1
    assert b"TLS" in said
