"""What holds for all tests."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How fast a machine draws examples says nothing of what is tested.
settings.register_profile("muster", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("muster")


@pytest.fixture(scope="session", autouse=True)
def _interrupts_are_not_ignored() -> None:
    """Where tests run in the background of a script, whose shell has them ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _homes_of_users_are_temporary() -> Iterator[None]:
    """Where agents run as root, so that none gives away uids of this machine."""
    place = Path(tempfile.mkdtemp(prefix="muster-users-"))
    place.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUSTER_USERS_DIR", str(place))
        yield
    shutil.rmtree(place, ignore_errors=True)  # processes of users may just be ending
