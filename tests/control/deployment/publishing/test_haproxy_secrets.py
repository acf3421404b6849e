"""HAProxy sends the secrets of deployments where its operator wishes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.deployment.publishing.balancers import Haproxy, needs_haproxy, service
from tests.patience import until

from muster.control.deployment.publishing.effects import PublishServices
from muster.control.deployment.publishing.performer import TrafficPublisher
from muster.control.deployment.publishing.settings import TrafficSettings
from muster.core.serving.traffic import Target

pytestmark = needs_haproxy
CHAT = service("chat", Target(route="rte-1", host="127.0.0.1", port=9, revision=1), secret="known")
LINE = "http-request set-header Muster-Secret known"


@pytest.fixture
def haproxy(tmp_path: Path) -> Iterator[Haproxy]:
    made = Haproxy(tmp_path)
    made.start()
    yield made
    made.kill()


def test_requests_carry_secrets_where_wished_and_then_the_file_is_not_for_everybody(
    haproxy: Haproxy,
) -> None:
    file = haproxy.place / "muster.cfg"

    def publish(*, secrets: bool) -> int:
        """The mode of the file once HAProxy has it."""
        settings = TrafficSettings(haproxy=haproxy.settings(secrets=secrets))
        performer = TrafficPublisher(settings, lambda _: None)
        try:
            performer.perform([PublishServices(1, (CHAT,))])
            until(lambda: (LINE in file.read_text()) is secrets)
            until(lambda: haproxy.leads("/chat") and haproxy.has_its_file())
        finally:
            performer.close()
        return file.stat().st_mode & 0o777

    modes = [publish(secrets=secrets) for secrets in (False, True, False)]
    assert modes == [0o644, 0o640, 0o644]
