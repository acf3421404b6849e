"""The proxy as a process of its own: `python -m muster.app.proxy_process`, settings on stdin.

It goes on while its controller is away, and starts without it: ``services.json`` in its directory
holds the services that it knew last. ``lock`` there is held by the proxy that runs, and
``proxy.json`` tells its process and its port.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from muster.agent.supervisor import lock_file
from muster.app.home import write_private
from muster.app.listening import listen
from muster.app.process import allow_files, run_process, settle_memory
from muster.core.errors import Conflict, MusterError
from muster.core.serving.traffic import TrafficView
from muster.proxy.controller import Controller, follow, report
from muster.proxy.proxy import Proxy
from muster.wire.transport import ServerTls

log = logging.getLogger(__name__)

DEFAULT_PORT = 8282
LOCK_FILE = "lock"
RUNNING_FILE = "proxy.json"
SERVICES_FILE = "services.json"


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """
    Args:
        directory: the proxy's own.
        controller: a file with the URL of the controller and a token, as the home's client.json.
        port: 0 means any.
        tls: needed for every address but loopback.
        logs_requests: whether each request makes a line in the log.
    """

    directory: Path
    controller: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tls: ServerTls | None = None
    logs_requests: bool = False


def proxy_beside(
    home: Path, host: str, port: int, certificate: Path | None, key: Path | None
) -> ProxyConfig:
    """The settings of a proxy for the cluster of a home."""
    tls = None
    if certificate is not None and key is not None:
        tls = ServerTls(certificate.absolute(), key.absolute())
    return ProxyConfig(home / "proxy", home / "client.json", host, port, tls)


def dump_proxy(config: ProxyConfig) -> str:
    """The settings as text, for ``load_proxy``."""
    return json.dumps(
        {
            "directory": str(config.directory),
            "controller": str(config.controller),
            "host": config.host,
            "port": config.port,
            "tls": [str(config.tls.certificate), str(config.tls.key)] if config.tls else None,
            "logs_requests": config.logs_requests,
        }
    )


def load_proxy(text: str) -> ProxyConfig:
    kept = json.loads(text)
    return ProxyConfig(
        directory=Path(kept["directory"]),
        controller=Path(kept["controller"]),
        host=kept["host"],
        port=kept["port"],
        tls=ServerTls(*map(Path, kept["tls"])) if kept["tls"] else None,
        logs_requests=kept["logs_requests"],
    )


async def serve(config: ProxyConfig) -> None:
    """Be the proxy until SIGTERM or SIGINT, or until a part of it fails.

    Raises:
        MusterError: it cannot start: another one runs on its directory, or its port is taken.
    """
    allow_files()
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells each request
    config.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    with _locked(config.directory):
        ports = range(config.port, config.port + 1)
        listener = listen(config.host, ports, tls=config.tls is not None)
        port = listener.getsockname()[1]
        controller = Controller(config.controller)
        proxy = Proxy(
            f"{socket.gethostname()}:{port}",
            controller.identify,
            secure=config.tls is not None,
            logs_requests=config.logs_requests,
        )
        services = config.directory / SERVICES_FILE
        if (known := _known(services)) is not None:
            proxy.set_table(known)
        async with proxy.serving(listener, _context(config.tls)):
            running = json.dumps({"pid": os.getpid(), "port": port})
            write_private(config.directory / RUNNING_FILE, running)
            settle_memory()
            log.info("the proxy serves at port %s", port)
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
        raise Conflict(f"a proxy runs on {directory} already (process {taken.holder})") from None
    try:
        yield
    finally:
        os.close(lock)


def main() -> None:
    run_process("muster proxy", serve(load_proxy(sys.stdin.read())))


if __name__ == "__main__":
    main()
