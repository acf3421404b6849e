"""The API server, asked with limits of time and size; its refusals in the words of providers."""

import os
import threading
import time
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

import httpx2
import msgspec
import yaml
from lightkube import ApiError, Client, ConfigError, KubeConfig
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.kubeconfig import DEFAULT_KUBECONFIG
from lightkube.config.models import User
from lightkube.resources.core_v1 import Pod, Secret
from lightkube.types import PatchType

from muster.autoscaling.standing import CreateOutcome
from muster.core.errors import MusterError
from muster.providers.kubernetes.settings import KubernetesSettings
from muster.providers.provider import ProviderError

REQUEST_S = 10.0
"""Longest silence of the API server within a request."""
MAX_ANSWER_BYTES = 64 * 2**20
PAGE = 500
"""Pods of one page of a list, as kubectl asks for them."""
MAX_PODS = 200_000
"""More than Kubernetes is made for."""
THROTTLED_TRIES = 4
"""A server that has too much to do is asked so often, if it says when."""
RESTARTS = 2
"""A list whose next page has expired begins anew so often."""

T = TypeVar("T", Pod, Secret)


class ApiRefused(ProviderError):
    """An answer of the API server that is no success.

    Args:
        code: of HTTP.
        reason: Kubernetes' word for it; empty where there is none.
    """

    def __init__(self, outcome: CreateOutcome, told: str, code: int, reason: str) -> None:
        super().__init__(outcome, told)
        self.code = code
        self.reason = reason


class AlreadyThere(MusterError):
    """An object of this name exists."""


class Absent(ApiRefused):
    """There is no such object, or no such namespace."""


class BoundedTransport(httpx2.BaseTransport):
    """HTTP whose answers end by a deadline, which holds for the thread that set it, and at a size.

    A server that sends a byte now and then would hold a caller for good: time-outs of connections
    begin anew with each byte.
    """

    def __init__(self, inner: httpx2.BaseTransport) -> None:
        self._inner = inner
        self._ends = threading.local()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        self._ends.at = time.monotonic() + seconds
        try:
            yield
        finally:
            del self._ends.at

    def left_s(self) -> float:
        """Seconds until the deadline of this thread."""
        return float(self._ends.at) - time.monotonic()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        for _ in range(THROTTLED_TRIES - 1):
            response = self._send(request)
            wait_s = _retry_after_s(response)
            if wait_s is None or wait_s > self.left_s():
                return response
            response.close()
            time.sleep(wait_s)
        return self._send(request)

    def _send(self, request: httpx2.Request) -> httpx2.Response:
        left_s = self.left_s()
        if left_s <= 0:
            raise httpx2.ReadTimeout("the time for this is over", request=request)
        request.extensions["timeout"] = httpx2.Timeout(min(REQUEST_S, left_s)).as_dict()
        response = self._inner.handle_request(request)
        response.headers.setdefault("Content-Type", "text/plain")  # lightkube relies on one
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _BoundedStream(response.stream, float(self._ends.at), request)
        return response

    def close(self) -> None:
        self._inner.close()


class _BoundedStream(httpx2.SyncByteStream):
    def __init__(
        self, inner: httpx2.SyncByteStream, ends_at: float, request: httpx2.Request
    ) -> None:
        self._inner, self._ends_at, self._request = inner, ends_at, request

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self._inner:
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                raise httpx2.ReadError("the answer is too long", request=self._request)
            if time.monotonic() > self._ends_at:
                raise httpx2.ReadTimeout("the answer takes too long", request=self._request)
            yield part

    def close(self) -> None:
        self._inner.close()


def _retry_after_s(response: httpx2.Response) -> float | None:
    """How long the server asks to wait, which it does before it begins with a request; None if it
    does not."""
    asked = response.headers.get("Retry-After", "")
    if response.status_code == 429 and len(asked) < 6 and asked.isascii() and asked.isdecimal():
        return float(asked)
    return None


class KubernetesApi:
    """Pods and Secrets of one namespace. Safe to use from several threads; connects when it is
    first used.

    Every method raises ProviderError for what the API server, or the way to it, refuses.
    """

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: tuple[Client, BoundedTransport] | None = None

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened[0].close()
                self._opened = None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Have all requests of this thread end by then."""
        with self._open()[1].within(seconds):
            yield

    def left_s(self) -> float:
        """Seconds until the end that ``within`` has set."""
        return self._open()[1].left_s()

    def create(self, wanted: T, *, dry_run: bool = False) -> T:
        """Make an object.

        Raises:
            AlreadyThere: an object of this name exists, whosever it is.
        """
        try:
            with _refusals(_secrets_in(wanted)):
                return self._client.create(wanted, dry_run=dry_run)
        except ApiRefused as refused:
            if refused.code == 409 and refused.reason == "AlreadyExists":
                raise AlreadyThere from None
            raise

    def get(self, kind: type[T], name: str) -> T | None:
        """The object of this name; None if there is none."""
        try:
            with _refusals():
                return self._client.get(kind, name)
        except Absent:
            return None

    def patch(self, wanted: Secret, *, dry_run: bool = False) -> Secret:
        """Give the Secret of this name the same data, beside what else it has.

        Raises:
            Absent: there is no such Secret.
        """
        name = (wanted.metadata and wanted.metadata.name) or ""
        data = {"data": wanted.data}
        with _refusals(_secrets_in(wanted)):
            return self._client.patch(
                Secret, name, data, patch_type=PatchType.MERGE, dry_run=dry_run
            )

    def delete(
        self, kind: type[T], name: str, *, grace_s: int | None = None, dry_run: bool = False
    ) -> None:
        """Delete the object of this name, if there is one.

        Args:
            grace_s: how long it may take to end; None is as long as the object itself says.
        """
        with suppress(Absent), _refusals():
            self._client.delete(kind, name, grace_period=grace_s, dry_run=dry_run)

    def pods(self, labels: Mapping[str, str]) -> tuple[list[Pod], bool]:
        """The pods with these labels, and whether there are no others.

        Raises:
            ProviderError: nothing is known of them.
        """
        restarts = 0
        while True:
            pods: list[Pod] = []
            try:
                with _refusals():
                    for pod in self._client.list(Pod, labels=dict(labels), chunk_size=PAGE):
                        pods.append(pod)
                        if len(pods) > MAX_PODS:
                            return pods, False
                return pods, True
            except ProviderError as error:
                if isinstance(error, ApiRefused) and error.code == 410 and restarts < RESTARTS:
                    restarts += 1
                elif pods:
                    return pods, False
                else:
                    raise

    @property
    def _client(self) -> Client:
        return self._open()[0]

    def _open(self) -> tuple[Client, BoundedTransport]:
        """
        Raises:
            ProviderError: there is no usable configuration.
        """
        with self._lock:
            if self._opened is None:
                try:
                    self._opened = _connect(self._settings)
                except yaml.YAMLError:  # whose text shows what is in the file
                    raise _unusable("it is no valid YAML") from None
                except _UNUSABLE as error:
                    raise _unusable(f"{type(error).__name__}: {error}") from None
            return self._opened


_UNUSABLE = (
    ConfigError,
    AttributeError,
    OSError,
    LookupError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
    httpx2.InvalidURL,
)
"""Raised by lightkube for a configuration that lacks something or is wrong."""


def _unusable(why: str) -> ProviderError:
    return ProviderError(CreateOutcome.CREDENTIALS, f"the kubeconfig cannot be used: {why}")


def _connect(settings: KubernetesSettings) -> tuple[Client, BoundedTransport]:
    if settings.kubeconfig is not None:
        found = KubeConfig.from_file(settings.kubeconfig)
    elif settings.context is not None:
        found = KubeConfig.from_file(os.environ.get("KUBECONFIG", DEFAULT_KUBECONFIG))
    else:
        found = KubeConfig.from_env()
    config = found.get(settings.context)
    if config is None:
        raise ConfigError("it has no current context")
    user = config.user or User()
    tls = verify_cluster(config.cluster, user, config.abs_file)
    transport = BoundedTransport(httpx2.HTTPTransport(verify=tls))
    client = Client(
        config._replace(user=user),
        namespace=settings.namespace,
        field_manager="muster",
        transport=transport,
    )
    return client, transport


@contextmanager
def _refusals(hidden: Collection[str] = ()) -> Iterator[None]:
    """Tell errors of a request as a provider's.

    Args:
        hidden: texts that a server may have repeated, and that nobody is to see.
    """
    try:
        yield
    except httpx2.HTTPStatusError as error:
        raise _refused(error, hidden) from None
    except httpx2.HTTPError as error:
        told = f"{type(error).__name__}: {error}"
        raise ProviderError(CreateOutcome.UNKNOWN, told) from None
    except (ConfigError, OSError) as error:  # of the program that a kubeconfig has make tokens
        raise _unusable(str(error)) from None
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        told = f"the API server's answer cannot be read: {type(error).__name__}"
        raise ProviderError(CreateOutcome.UNKNOWN, told) from None


_OUTCOMES = {
    400: CreateOutcome.BAD_REQUEST,
    401: CreateOutcome.CREDENTIALS,
    404: CreateOutcome.BAD_REQUEST,
    405: CreateOutcome.BAD_REQUEST,
    409: CreateOutcome.THROTTLED,  # others write the same quota at this moment
    413: CreateOutcome.BAD_REQUEST,
    415: CreateOutcome.BAD_REQUEST,
    422: CreateOutcome.BAD_REQUEST,
    429: CreateOutcome.THROTTLED,
}


def _refused(error: httpx2.HTTPStatusError, hidden: Collection[str]) -> ApiRefused:
    code = error.response.status_code
    told, reason, about = f"HTTP {code}", "", ""
    if isinstance(error, ApiError):
        told, reason = error.status.message or told, error.status.reason or ""
        about = (error.status.details and error.status.details.name) or ""
    for text in hidden:
        told = told.replace(text, "…")
    outcome = _OUTCOMES.get(code, CreateOutcome.UNKNOWN)
    if code == 403:
        outcome = _forbidden(told, about)
    return (Absent if code == 404 else ApiRefused)(outcome, told, code, reason)


def _forbidden(told: str, about: str) -> CreateOutcome:
    """The outcome of a 403, with which Kubernetes refuses whoever may not ask, and also an object
    that an admission plugin does not like: only its message tells them apart.

    Args:
        about: the name of the object; empty where the request concerned none.
    """
    if "exceeded quota" in told:
        return CreateOutcome.QUOTA
    if "status unknown for quota" in told:  # it is counted anew
        return CreateOutcome.THROTTLED
    if about and " is forbidden: User " not in told:
        return CreateOutcome.BAD_REQUEST
    return CreateOutcome.CREDENTIALS


def _secrets_in(wanted: Pod | Secret) -> list[str]:
    """The values of a Secret, as they are and as they are sent."""
    if isinstance(wanted, Pod):
        return []
    sent = list((wanted.data or {}).values())
    return [text for text in (*sent, *(b64decode(each).decode() for each in sent)) if text]
