"""The results of kernels that run as users of their own: told, removed, and nobody else's."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.agent.supervisor.driver import Driver

from muster.agent.supervisor.scratch import RESULT_FILE

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users")


def test_result_of_a_user_is_told_and_removed(supervisor: Driver, ada: dict[str, Any]) -> None:
    script = "printf hello > $MUSTER_RESULT; pwd"
    end = supervisor.run(["sh", "-c", script], account=ada, workdir="/", result_bytes=3)

    assert end.get("result") == "hel"
    assert supervisor.log("k") == "/\n"
    assert list(Path(ada["scratch"]).iterdir()) == []


def test_file_of_somebody_else_is_no_result_of_a_user(
    supervisor: Driver, ada: dict[str, Any]
) -> None:
    """Machines exist whose users may make second names of files that they cannot read."""
    place = Path(ada["scratch"])
    secret = place / "secret"
    secret.write_text("the supervisor's")
    script = 'echo begun; while ! [ -e "$MUSTER_RESULT" ]; do sleep 0.01; done'
    supervisor.start("k", command=["sh", "-c", script], account=ada, result_bytes=100)
    supervisor.started("k")
    os.link(secret, place / "k.1" / RESULT_FILE)
    end = supervisor.ended("k")

    assert end.get("exit_code") == 0
    assert "result" not in end
