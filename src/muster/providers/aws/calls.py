"""Calls of EC2's API, bounded in time: connections, their limits, and their errors as outcomes."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import boto3
from botocore.config import Config

from muster.autoscaling.standing import CreateOutcome
from muster.providers.aws.errors import BOTO_ERRORS, Ec2Error, ec2_error
from muster.providers.aws.settings import AwsSettings

Answer = Mapping[str, Any]
MAX_PAGES = 200
"""Pages of a listing that are read."""
_CONNECTIONS = 32


class Ec2Client(Protocol):
    """The part of boto3's client that is used; it has no types."""

    def create_tags(self, **parameters: Any) -> Answer: ...
    def describe_images(self, **parameters: Any) -> Answer: ...
    def describe_instances(self, **parameters: Any) -> Answer: ...
    def describe_launch_template_versions(self, **parameters: Any) -> Answer: ...
    def describe_spot_instance_requests(self, **parameters: Any) -> Answer: ...
    def get_console_output(self, **parameters: Any) -> Answer: ...
    def reboot_instances(self, **parameters: Any) -> Answer: ...
    def run_instances(self, **parameters: Any) -> Answer: ...
    def start_instances(self, **parameters: Any) -> Answer: ...
    def stop_instances(self, **parameters: Any) -> Answer: ...
    def terminate_instances(self, **parameters: Any) -> Answer: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of a provider's call, which may be several requests to EC2.

    Args:
        connect_s, read_s: of one try of a request.
        tries: of a request that changes nothing when repeated.
        last_start_s: no request begins later in the call; so the call ends within
            ``last_start_s + tries * (connect_s + read_s) + 1``, that being botocore's pause.
        poll_s: between looks at what is awaited.
        settle_s: after a launch, until EC2 surely lists it.
        page: instances a page of a listing.
    """

    connect_s: float = 4.0
    read_s: float = 12.0
    tries: int = 2
    last_start_s: float = 25.0
    poll_s: float = 2.0
    settle_s: float = 60.0
    page: int = 1000

    @property
    def longest_s(self) -> float:
        """The longest that a call takes."""
        return self.last_start_s + self.tries * (self.connect_s + self.read_s) + 1.0


@dataclass(frozen=True, slots=True)
class _Clients:
    """Connections to EC2: ``patient`` tries again by itself, ``once`` does not. A request that was
    tried twice and then refused may have been done the first time, so one whose refusal is a
    promise is tried once."""

    patient: Ec2Client
    once: Ec2Client


_sessions: dict[str | None, Any] = {}
"""boto3's sessions by profile. One takes 30 MB, so pools share it."""
_sessions_lock = threading.Lock()


class Ec2Calls:
    """EC2 as one pool reaches it; threads may share it."""

    def __init__(self, settings: AwsSettings, limits: CallLimits) -> None:
        self.limits = limits
        self._settings = settings
        self._clients: _Clients | None = None

    def begin(self) -> "CallConversation":
        """The requests of one call of the provider."""
        return CallConversation(self, time.monotonic() + self.limits.last_start_s)

    def clients(self) -> _Clients:
        """
        Raises:
            Ec2Error: there are no such credentials.
        """
        with _sessions_lock:  # a session serves one thread at a time
            if self._clients is None:
                try:
                    self._clients = self._connect()
                except BOTO_ERRORS as error:
                    raise ec2_error(error) from None
            return self._clients

    def forget(self) -> None:
        """Read credentials anew at the next call: those that there are were refused."""
        with _sessions_lock:
            _sessions.pop(self._settings.profile, None)
            self._clients = None

    def close(self) -> None:
        with _sessions_lock:
            clients, self._clients = self._clients, None
        if clients is not None:
            clients.patient.close()
            clients.once.close()

    def _connect(self) -> _Clients:
        profile = self._settings.profile
        if profile not in _sessions:
            _sessions[profile] = boto3.session.Session(profile_name=profile)
        return _Clients(self._client(profile, self.limits.tries), self._client(profile, 1))

    def _client(self, profile: str | None, tries: int) -> Ec2Client:
        config = Config(
            connect_timeout=self.limits.connect_s,
            read_timeout=self.limits.read_s,
            retries={"mode": "standard", "total_max_attempts": tries},
            max_pool_connections=_CONNECTIONS,
        )
        client: Ec2Client = _sessions[profile].client(
            "ec2",
            region_name=self._settings.region,
            endpoint_url=self._settings.endpoint_url,
            config=config,
        )
        return client


class CallConversation:
    """The requests of one call, which share its time."""

    def __init__(self, calls: Ec2Calls, until: float) -> None:
        self._calls = calls
        self._until = until

    @property
    def client(self) -> Ec2Client:
        return self._calls.clients().patient

    @property
    def once(self) -> Ec2Client:
        return self._calls.clients().once

    def ask(self, request: Callable[..., Answer], **parameters: Any) -> Answer:
        """EC2's answer to a request of ``client`` or ``once``.

        Raises:
            Ec2Error: it is refused or not answered, or no time is left for it.
        """
        if time.monotonic() > self._until:
            raise Ec2Error(CreateOutcome.UNKNOWN, "no time is left for a request to EC2")
        try:
            return request(**parameters)
        except BOTO_ERRORS as error:
            told = ec2_error(error)
            if told.outcome is CreateOutcome.CREDENTIALS:
                self._calls.forget()
            raise told from None

    def pages(
        self, request: Callable[..., Answer], filters: Sequence[Mapping[str, Any]]
    ) -> Iterator[Answer]:
        """The pages of a listing, of what all filters let through.

        Raises:
            Ec2Error: as in ``ask``, at any page, or there are more than ``MAX_PAGES``.
        """
        parameters: dict[str, Any] = {"Filters": filters, "MaxResults": self._calls.limits.page}
        for _ in range(MAX_PAGES):
            page = self.ask(request, **parameters)
            yield page
            if not page.get("NextToken"):
                return
            parameters["NextToken"] = page["NextToken"]
        raise Ec2Error(CreateOutcome.UNKNOWN, f"there are more than {MAX_PAGES} pages")

    def pause(self) -> bool:
        """Wait before the next look at something; false, at once, if no time is left for one."""
        if time.monotonic() + self._calls.limits.poll_s > self._until:
            return False
        time.sleep(self._calls.limits.poll_s)
        return True
