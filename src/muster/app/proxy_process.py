"""The proxy as a process of its own: `python -m muster.app.proxy_process`, settings on stdin.

It goes on while its controller is away, and starts without it, with the services that it knew last.
"""

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec

from muster.agent.supervisor import lock_file
from muster.app.addresses import host_for_others
from muster.app.home import write_private
from muster.app.listening import listen
from muster.app.process import allow_files, run_process, settle_memory
from muster.app.proxy_config import (
    LOCK_FILE,
    RUNNING_FILE,
    SERVICES_FILE,
    ProxyConfig,
    RunningProxy,
    last_proxy,
    load_proxy,
)
from muster.core.errors import Conflict, MusterError
from muster.core.host_port import joined
from muster.core.serving.traffic import TrafficView
from muster.files import make_directory
from muster.proxy.controller import Controller, follow, report
from muster.proxy.proxy import Proxy
from muster.wire.transport import ServerTls

log = logging.getLogger(__name__)


async def serve(config: ProxyConfig) -> None:
    """Be the proxy until SIGTERM or SIGINT, or until a part of it fails.

    Raises:
        MusterError: it cannot start: another one runs on its directory, or its port is taken.
    """
    allow_files()
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells each request
    make_directory(config.directory, is_set=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    with _locked(config.directory):
        option = "--port, or --proxy-port of `muster up`"
        secure = config.tls is not None
        listener = listen(config.host, _ports(config), tls=secure, option=option)
        port = listener.getsockname()[1]
        scheme = "https" if secure else "http"
        url = f"{scheme}://{joined(host_for_others(config.host, config.tls), port)}"
        controller = Controller(config.controller)
        proxy = Proxy(
            f"{socket.gethostname()}:{port}",
            controller.identify,
            url=url,
            secure=secure,
            logs_requests=config.logs_requests,
        )
        services = config.directory / SERVICES_FILE
        if (known := _known(services)) is not None:
            proxy.set_table(known)
        async with proxy.serving(listener, _context(config.tls)):
            running = RunningProxy(os.getpid(), port, url)
            write_private(config.directory / RUNNING_FILE, msgspec.json.encode(running).decode())
            settle_memory()
            log.info("the proxy serves at %s", url)
            work = [
                asyncio.create_task(follow(controller, proxy, partial(_keep, services))),
                asyncio.create_task(report(controller, proxy)),
            ]
            ended = asyncio.create_task(stop.wait())
            await asyncio.wait([ended, *work], return_when=asyncio.FIRST_COMPLETED)
        for task in (ended, *work):
            task.cancel()
        ends = await asyncio.gather(ended, *work, return_exceptions=True)
        await controller.close()
        for end in ends:
            if isinstance(end, Exception):  # its end ends the process, which is started again
                raise end
        (config.directory / RUNNING_FILE).unlink(missing_ok=True)


def _ports(config: ProxyConfig) -> Sequence[int]:
    """The ports to try. Where several may be, one that was killed had the first: clients look for
    it there."""
    ports = range(config.port, min(config.port + config.ports_tried, 65536))
    last = last_proxy(config.directory)
    return (last.port, *ports) if last is not None and last.port in ports else ports


def _context(tls: ServerTls | None) -> ssl.SSLContext | None:
    """
    Raises:
        MusterError: the certificate or its key cannot be used.
    """
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise MusterError(f"cannot use {tls.certificate} with {tls.key}: {error}") from None
    return context


def _known(file: Path) -> TrafficView | None:
    """The services that a proxy knew last; None if that is lost."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(file.read_bytes(), type=TrafficView)
    return None


def _keep(file: Path, view: TrafficView) -> None:
    try:
        write_private(file, msgspec.json.encode(view).decode())
    except MusterError as error:  # traffic goes on, if not over a restart
        log.error("%s", error)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """
    Raises:
        Conflict: another proxy runs on the directory.
    """
    try:
        lock = lock_file.take(directory / LOCK_FILE)
    except lock_file.Taken as taken:
        raise Conflict(
            f"a proxy runs on {directory} already (process {taken.holder}); where `muster up` "
            f"started it, `muster up --no-proxy` does not"
        ) from None
    try:
        yield
    finally:
        os.close(lock)


def main() -> None:
    run_process("muster proxy", serve(load_proxy(sys.stdin.read())))


if __name__ == "__main__":
    main()
