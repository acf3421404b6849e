"""The notice of a failed recovery by AWS SNS, as moto has it."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.server import ThreadedMotoServer
from moto.sns.models import sns_backends
from tests.control.conftest import MakeWorld
from tests.control.recovery.clinic import FAULTY, always_fails, clinic

from muster.control.recovery.telling import failure_message
from muster.core.states import JobState

REGION = "us-east-1"
URL = f"sns://AKIAIOSFODNN7EXAMPLE/wJalrXUtnFEMI/K7MDENG/{REGION}/ops"

SEND = """
import json, sys
from apprise import Apprise
told = json.load(sys.stdin)
channel = Apprise.instantiate(told["url"])
channel.notify_url = told["endpoint"]
sys.exit(not channel.send(body=told["body"], title=told["title"]))
"""
"""Sends by the library that sends notices, to moto in place of AWS."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}/"
    server.stop()


def test_topic_gets_subject_and_body_of_a_failed_recovery(worlds: MakeWorld, endpoint: str) -> None:
    here = clinic(worlds, "a", course=always_fails, checks={"a": [FAULTY]})
    job = here.job(name="train", recovery={"max_restarts": 0}, notify=[URL])
    recovery = here.recovery(job)
    assert here.ended(job) is JobState.FAILED
    message = failure_message(job, recovery, here.world.clock.now())

    told = {"url": URL, "endpoint": endpoint, "title": message.title, "body": message.body}
    subprocess.run([sys.executable, "-c", SEND], input=json.dumps(told).encode(), check=True)
    (topic,) = sns_backends[DEFAULT_ACCOUNT_ID][REGION].topics.values()
    ((_, text, subject, *_),) = topic.sent_notifications
    assert subject == "job train: FAILED, a at fault"
    assert "agent a: faulty" in text
    assert "what to do: Look at the machine: `muster agents show a`" in text
