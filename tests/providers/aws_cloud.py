"""EC2 as moto has it, over HTTP, for tests of the provider ``aws-ec2``.

Two gaps of moto are mended: a client token that comes again is answered with the instances of its
first call, and refused if it comes with other parameters. Faults are had on demand.
"""

import logging
import threading
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import boto3
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from muster.core.specs.pool import MachineShape, PoolSpec
from muster.providers.aws.ec2 import AwsEc2
from muster.providers.provider import AgentSetup, Machine, Scope, SliceOrder

REGION = "us-east-1"
TOKEN = "join-token-which-nobody-may-see"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    "AWS_EC2_METADATA_DISABLED": "true",
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
}
"""Variables by which boto3 finds these credentials, and no others. moto looks through all images
for each instance, so it gets few."""
Parameters = Mapping[str, str]
_Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


@dataclass(frozen=True)
class Request:
    """A request as it came."""

    action: str
    parameters: Parameters


@dataclass(frozen=True)
class Fault:
    """The fate of a request.

    Args:
        status, body: answered without asking moto; without a status moto acts.
        lost: the connection breaks before moto's answer.
    """

    status: int | None = None
    body: bytes = b""
    lost: bool = False


LOST = Fault(lost=True)
PASSED = Fault()
"""No fault: the next one is for a later request."""


def refusal(code: str, status: int = 400, message: str = "no") -> Fault:
    body = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        "</Errors><RequestID>1</RequestID></Response>"
    )
    return Fault(status, body.encode())


class AwsCloud:
    """A server, and what it is to do with the next requests."""

    def __init__(self) -> None:
        self._moto: _Wsgi = DomainDispatcherApplication(create_backend_app)
        self._launched: dict[str, tuple[Parameters, bytes]] = {}
        self._lock = threading.Lock()
        self.image = ""
        self.reset()
        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def reset(self) -> None:
        """Forget faults and requests; instances stay."""
        self.requests: list[Request] = []
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.released = threading.Event()
        self.hangs: set[str] = set()
        self.rewrites: dict[str, Callable[[bytes], bytes]] = {}
        self.lists: Callable[[str], bool] = lambda _: True

    def asked(self, action: str) -> list[Parameters]:
        """The parameters of the requests of this kind."""
        return [each.parameters for each in self.requests if each.action == action]

    @cached_property
    def client(self) -> Any:
        """A client beside the provider, for another hand in the same account."""
        return boto3.session.Session().client("ec2", region_name=REGION, endpoint_url=self.url)

    @contextmanager
    def running(self) -> Iterator["AwsCloud"]:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._thread.start()
        try:
            answer = self.client.register_image(Name="gpu", RootDeviceName="/dev/sda1")
            self.image = answer["ImageId"]
            yield self
        finally:
            self.client.close()
            self.released.set()
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = BytesIO(body)
        parameters = dict(parse_qsl(body.decode(), keep_blank_values=True))
        action = parameters.get("Action", "")
        with self._lock:
            self.requests.append(Request(action, parameters))
            faults = self.faults[action]
            fault = faults.pop(0) if faults else None
            if action not in self.hangs and (fault is None or fault.status is None):
                status, headers, answer = self._acted(environ, action, parameters)
        if action in self.hangs:
            self.released.wait(30)
            raise ConnectionAbortedError
        if fault is not None and fault.lost:
            raise ConnectionAbortedError  # werkzeug drops the connection
        if fault is not None and fault.status is not None:
            status, headers, answer = f"{fault.status} X", [], fault.body
        elif rewrite := self.rewrites.get(action):
            answer = rewrite(answer)
        kept = [each for each in headers if each[0].lower() != "content-length"]
        start_response(status, [*kept, ("Content-Length", str(len(answer)))])
        return [answer]

    def _acted(
        self, environ: dict[str, Any], action: str, parameters: Parameters
    ) -> tuple[str, list[tuple[str, str]], bytes]:
        """moto's answer."""
        token = parameters.get("ClientToken", "")
        if action == "RunInstances" and token in self._launched:
            before, answer = self._launched[token]
            if before == parameters:
                return "200 OK", [], answer
            return "400 X", [], refusal("IdempotentParameterMismatch").body
        told: list[Any] = []
        answer = b"".join(
            self._moto(environ, lambda status, headers, _=None: told.extend((status, headers)))
        )
        status, headers = told[0], list(told[1])
        if action == "RunInstances" and token and status.startswith("200"):
            self._launched[token] = parameters, answer
        if action == "DescribeInstances" and status.startswith("200"):
            answer = self._listed(answer)
        return status, headers, answer

    def _listed(self, answer: bytes) -> bytes:
        """An answer of DescribeInstances without what is not to be listed."""
        root = ET.fromstring(answer)
        for instances in root.iterfind(".//{*}instancesSet"):
            for item in list(instances):
                if not self.lists(item.findtext("{*}instanceId", "")):
                    instances.remove(item)
        return bytes(ET.tostring(root))


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        self.close_connection = True

    def log(self, type: str, message: str, *args: Any) -> None:
        return


class QuickEc2(AwsEc2):
    """The provider that looks often, and reads small pages."""

    limits = replace(AwsEc2.limits, poll_s=0.02, page=5)


class Forgetful(QuickEc2):
    """The provider once EC2 surely lists all launches."""

    limits = replace(QuickEc2.limits, settle_s=0.0)


class Unwaiting(QuickEc2):
    """The provider without time to look twice at anything."""

    limits = replace(QuickEc2.limits, poll_s=60.0)


class Impatient(QuickEc2):
    """The provider with little time for an answer."""

    limits = replace(QuickEc2.limits, connect_s=0.5, read_s=0.5, last_start_s=5.0)


_numbers = count()


def new_scope(pool: str = "gpus") -> Scope:
    """The scope of a pool that no other test has."""
    return Scope(f"cluster-{next(_numbers)}", pool, Path("/nonexistent"))


def pool_spec(cloud: AwsCloud, *, preemptible: bool = False, **settings: Any) -> PoolSpec:
    made = {"region": REGION, "image": cloud.image, "instance_type": "p5.48xlarge"}
    return PoolSpec(
        name="gpus",
        provider="aws-ec2",
        machine=MachineShape.model_validate({"cpu": 4, "memory": "8GiB"}),
        max_slices=4,
        preemptible=preemptible,
        settings=made | {"endpoint_url": cloud.url} | settings,
    )


def order_of(slice_: str, size: int = 1, *, preemptible: bool = False) -> SliceOrder:
    names = tuple(f"{slice_}-{each}" for each in range(size))
    shape = MachineShape.model_validate({"cpu": 4, "memory": "8GiB"})
    setup = AgentSetup("controller:7077", "default", TOKEN, "PEM")
    return SliceOrder(slice_, names, shape, preemptible, {}, setup)


def made_by(
    cloud: AwsCloud, scope: Scope | None = None, *, preemptible: bool = False, **settings: Any
) -> QuickEc2:
    spec = pool_spec(cloud, preemptible=preemptible, **settings)
    return QuickEc2(spec, scope or new_scope())


def instance(cloud: AwsCloud, machine: Machine) -> dict[str, Any]:
    """The words of EC2 about a machine."""
    answer = cloud.client.describe_instances(InstanceIds=[machine.id])
    found: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
    return found


def state(cloud: AwsCloud, machine: Machine) -> str:
    """EC2's word for the state of a machine, listed or not."""
    lists, cloud.lists = cloud.lists, lambda _: True
    told: str = instance(cloud, machine)["State"]["Name"]
    cloud.lists = lists
    return told


@contextmanager
def serving() -> Iterator[AwsCloud]:
    """A server, whose credentials boto3 finds."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        with AwsCloud().running() as cloud:
            yield cloud
