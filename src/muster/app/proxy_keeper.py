"""Keeping the proxy alive: a small process of its own, which goes on while the controller is away.

`python -m muster.app.proxy_keeper`, the proxy's directory on stdin. The controller keeps this
process alive, and this process the proxy: either of them may be killed while the controller is
away. ``settings.json`` in the directory holds the settings with which the next proxy starts, and
``trouble`` the sentence on a proxy that does not run.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from muster.agent.supervisor import lock_file
from muster.app.home import write_private
from muster.app.kept_process import KeptProcess, stop
from muster.app.process import run_process
from muster.app.proxy_config import LOCK_FILE, LOG_FILE, PROXY_NAME, ProxyConfig, dump_proxy
from muster.core.errors import Conflict, MusterError

KEEPER_LOCK_FILE = "keeper.lock"
KEEPER_LOG_FILE = "keeper.log"
SETTINGS_FILE = "settings.json"
TROUBLE_FILE = "trouble"
LOOK_S = 0.25
"""How often the keeper looks whether the proxy's trouble is another one."""
MAX_TROUBLE_BYTES = 4096


class KeptProxy:
    """The proxy of a controller, with its keeper."""

    name = PROXY_NAME

    def __init__(self, config: ProxyConfig) -> None:
        self._config = config
        self._keeper = KeptProcess(
            f"the keeper of {PROXY_NAME}",
            "muster.app.proxy_keeper",
            config.directory / KEEPER_LOCK_FILE,
            config.directory / KEEPER_LOG_FILE,
            self._directory,
        )

    @property
    def trouble(self) -> str | None:
        """A sentence on a proxy, or a keeper, that does not run; None if both do."""
        return self._keeper.trouble or _trouble(self._config.directory)

    async def keep(self) -> None:
        """Keep both until cancelled; then tell them to end. A proxy that runs already stays as it
        is: the settings are those of the next one.

        Raises:
            MusterError: the settings cannot be written.
        """
        directory = self._config.directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(directory / SETTINGS_FILE, dump_proxy(self._config))
        try:
            await self._keeper.keep()
        finally:
            await stop_proxy(directory)

    async def _directory(self) -> str:
        return str(self._config.directory)


async def stop_proxy(directory: Path) -> None:
    """Tell the proxy of a directory to end, and its keeper before, which would start another."""
    await stop(directory / KEEPER_LOCK_FILE)
    await stop(directory / LOCK_FILE)


async def stop_unwished(directory: Path) -> None:
    """End a proxy that a former controller has had kept. One that a person has started stays."""
    if lock_file.is_held(directory / KEEPER_LOCK_FILE):
        await stop_proxy(directory)


async def keep_proxy(directory: Path) -> None:
    """Keep the proxy of a directory until SIGTERM or SIGINT, and tell it to end then.

    Raises:
        MusterError: another keeper is at work, or the settings cannot be read.
    """

    async def settings() -> str:
        try:
            return (directory / SETTINGS_FILE).read_text()
        except OSError as error:
            raise MusterError(f"{SETTINGS_FILE} cannot be read: {error.strerror}") from None

    try:
        lock = lock_file.take(directory / KEEPER_LOCK_FILE)
    except lock_file.Taken as taken:
        raise Conflict(f"process {taken.holder} keeps the proxy of {directory} alive") from None
    process = KeptProcess(
        PROXY_NAME,
        "muster.app.proxy_process",
        directory / LOCK_FILE,
        directory / LOG_FILE,
        settings,
    )
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(process.keep()),
                group.create_task(_note_trouble(process, directory / TROUBLE_FILE)),
            ]
            for signum in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(signum, _cancel, tasks)
    except* MusterError as group_error:
        raise group_error.exceptions[0] from None
    finally:
        os.close(lock)


def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


async def _note_trouble(process: KeptProcess, file: Path) -> None:
    """Write the trouble of the process into a file as it changes, for whoever asks the
    controller."""
    noted: str | None = ""
    while True:
        trouble = process.trouble
        if trouble != noted:
            with suppress(OSError, MusterError):  # a full disk: the proxy's log says it too
                if trouble is None:
                    file.unlink(missing_ok=True)
                else:
                    write_private(file, trouble)
                noted = trouble
        await asyncio.sleep(LOOK_S)


def _trouble(directory: Path) -> str | None:
    """The trouble that the keeper of a directory has noted; None if it has none."""
    if not lock_file.is_held(directory / KEEPER_LOCK_FILE):
        return None
    try:
        with (directory / TROUBLE_FILE).open("rb") as file:
            return file.read(MAX_TROUBLE_BYTES).decode(errors="replace") or None
    except OSError:
        return None


def main() -> None:
    run_process("the keeper of the proxy", keep_proxy(Path(sys.stdin.read())))


if __name__ == "__main__":
    main()
