"""The notice of a failed recovery by AWS SNS, as moto has it in place of AWS."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_proxy.certificate_creator import CertificateCreator
from moto.moto_proxy.proxy3 import ProxyRequestHandler
from moto.sns.models import sns_backends
from tests.control.conftest import MakeWorld
from tests.control.recovery.clinic import FAULTY, always_fails, clinic

from muster.control.notice.sending import Fate
from muster.control.recovery.telling import failure_message
from muster.core.states import JobState

REGION = "us-east-1"
URL = f"sns://AKIAIOSFODNN7EXAMPLE/wJalrXUtnFEMI/K7MDENG/{REGION}/ops"
TOLD = {"attempt_s": 30, "schemes": ["sns"], "loopback": True, "private": False}


class Proxy(ProxyRequestHandler):
    """Moto's, which leaves its connections to the garbage collector."""

    def finish(self) -> None:
        super().finish()
        self.connection.close()


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A proxy that answers whatever is addressed to AWS by itself."""
    template = Path(CertificateCreator.certdir) / "req.conf.tmpl"
    shutil.copy(template, tmp_path)
    monkeypatch.setattr(CertificateCreator, "certdir", str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def sent(proxy: str, **errand: str) -> dict[str, str]:
    """The fate of a notice that the process sends which sends all of them."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "muster.control.notice.sending"],
        input="".join(json.dumps(line) + "\n" for line in (TOLD, errand)).encode(),
        stdout=subprocess.PIPE,
        cwd="/",
        env={
            "HOME": "/nonexistent",
            "PATH": "/usr/bin",
            "HTTPS_PROXY": proxy,
            "REQUESTS_CA_BUNDLE": CertificateCreator.cacert,
        },
        timeout=60,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_topic_gets_subject_and_body_of_a_failed_recovery(worlds: MakeWorld, proxy: str) -> None:
    here = clinic(worlds, "a", course=always_fails, checks={"a": [FAULTY]})
    job = here.job(name="train", recovery={"max_restarts": 0}, notify=[URL])
    recovery = here.recovery(job)
    assert here.ended(job) is JobState.FAILED
    message = failure_message(job, recovery, here.world.clock.now())

    fate = sent(proxy, key="1", url=URL, title=message.title, body=message.body, tone=message.tone)
    assert fate == {"key": "1", "fate": Fate.TAKEN}
    (topic,) = sns_backends[DEFAULT_ACCOUNT_ID][REGION].topics.values()
    ((_, text, subject, *_),) = topic.sent_notifications
    assert subject == "job train: FAILED, a at fault"
    assert "agent a: faulty" in text
    assert "what to do: Look at the machine: `muster agents show a`" in text
