"""The machine's own log, in which an operator finds why it was reset or rebooted."""

import os
import syslog
from pathlib import Path

from muster.agent.health.kmsg import KERNEL_LOG

_LEVEL = syslog.LOG_WARNING | syslog.LOG_DAEMON


def tell_machine(sentence: str, path: Path = KERNEL_LOG) -> None:
    """Write a line to the kernel's log, which is on a console or kept by journald before the
    machine goes down; to syslog where that may not be written."""
    line = f"<{_LEVEL}>muster: {sentence}".encode()[:900]
    try:
        log = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(log, line)
        finally:
            os.close(log)
    except OSError:
        syslog.syslog(_LEVEL, f"muster: {sentence}")
