"""The agent's commands: JSON lines, checked whole before anything changes.

Each line is an object with an `op`. A line that cannot be obeyed raises `ProtocolError`, whose text
is the sentence sent back as `{"error": …}`; the connection goes on.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

SOCKET_NAME = "supervisor.sock"
# Told in `state`: a supervisor may be older than the agent that attaches to it. Any version knows
# `attach`, `shutdown`, and the id, generation and status of kernels in `state`.
VERSION = 2
MAX_LINE_BYTES = 4 << 20
MAX_RESULT_BYTES = 64 << 10
MIN_LOG_BYTES = 64 << 10  # one read of a pipe must fit, so that rotation keeps its bound

# Ids become file names, so they must not be able to leave their folder.
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")

Key = tuple[str, int]  # (kernel id, generation)
Device = int | str
_Object = dict[str, object]

encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def file_name(key: Key) -> str:
    """The name of a kernel's log and scratch directory."""
    kernel_id, generation = key
    return f"{kernel_id}.{generation}"


class ProtocolError(Exception):
    """A line that cannot be obeyed; the text is a sentence for the agent."""


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """The limits of one kernel; 0 stands for no limit.

    `controllers` are the cgroup controllers that these limits need, besides that of pids. With
    `least_cpu` a kernel gets what others leave of the processors.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    pids: int = 0
    controllers: tuple[str, ...] = ()
    least_cpu: bool = False

    @staticmethod
    def of(
        cpu_milli: int, memory_bytes: int, pids: int, *, least_cpu: bool = False
    ) -> "KernelLimits":
        cpu = ("cpu",) if cpu_milli else ()
        controllers = (*cpu, "memory") if memory_bytes else cpu
        return KernelLimits(cpu_milli, memory_bytes, pids, controllers, least_cpu and not cpu_milli)


@dataclass(frozen=True, slots=True)
class KernelAccount:
    """A user of this machine, as which kernels run."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str
    scratch: str  # the directory in which its scratch directories are made
    gains_privileges: bool  # whether set-user-id programs work for it


@dataclass(frozen=True, slots=True)
class Program:
    """The program of kernels that are started together."""

    command: tuple[str, ...]
    env: Mapping[str, str]  # with the supervisor's defaults, and without what is each kernel's own
    workdir: str | None  # None: a scratch directory of the kernel's own
    files: Mapping[str, str]  # path inside the scratch directory -> text


@dataclass(frozen=True, slots=True)
class Template:
    """The common part of kernels that are started together."""

    program: Program
    grace_s: float
    limits: KernelLimits
    log_max_bytes: int
    disk_bytes: int = 0  # the limit of its scratch directory; 0: no limit
    account: KernelAccount | None = None  # None: the supervisor's own
    owner: str = ""  # directories of one owner's kernels are never given to another's
    result_bytes: int = 0  # of the file that its end tells as its result, at most; 0: none is told
    stderr_apart: bool = False  # whether it has a pipe and a log of its own


@dataclass(frozen=True, slots=True)
class KernelOrder:
    """One kernel to start, now or, if queued, when one of its shape ends."""

    id: str
    generation: int
    template: Template
    env: Mapping[str, str]
    devices: tuple[Device, ...]
    device_milli: int  # how much of each of them, in thousandths
    shape: str
    queued: bool
    hold: bool = False  # get ready, report it, and wait for `go`


@dataclass(frozen=True, slots=True)
class StopOrder:
    """One kernel to stop, with its grace and the reason to report."""

    id: str
    generation: int
    grace_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Attach:
    """The sender of this command is the agent from now on."""


@dataclass(frozen=True, slots=True)
class StartKernels:
    """Start these kernels."""

    kernels: tuple[KernelOrder, ...]


@dataclass(frozen=True, slots=True)
class StopKernels:
    """Stop these kernels."""

    kernels: tuple[StopOrder, ...]


@dataclass(frozen=True, slots=True)
class GoKernels:
    """Let kernels run that are ready and wait for it."""

    kernels: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class RecallKernels:
    """Take kernels back that are still queued; others run on."""

    kernels: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Lease:
    """Kernels may run until this moment of the boot clock; infinity means for ever."""

    until_s: float


@dataclass(frozen=True, slots=True)
class AcknowledgeEvents:
    """The agent has safely got all events up to this number."""

    seq: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove the logs and scratch directories of ended kernels; `places` are directories in which
    other users' scratch directories may be."""

    kernels: tuple[Key, ...]
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shutdown:
    """End the supervisor, and all of its kernels before that."""

    grace_s: float


Order = (
    StartKernels
    | GoKernels
    | StopKernels
    | RecallKernels
    | Lease
    | AcknowledgeEvents
    | Forget
    | Shutdown
)
Op = Attach | Order


def parse(line: bytes | bytearray, env_defaults: Mapping[str, str]) -> Op:
    """Read one line; `env_defaults` are added to a template's environment where it lacks them.

    Raises:
        ProtocolError: not JSON, an unknown op, or a field that is missing or wrong.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a line is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise ProtocolError("a line must be a JSON object")
    match message.get("op"):
        case "start":
            return _start(message, env_defaults)
        case "ack":
            return AcknowledgeEvents(_integer(message, "seq"))
        case "stop":
            return StopKernels(tuple(_stop_order(item) for item in _objects(message, "kernels")))
        case "go":
            return GoKernels(_keys(message))
        case "recall":
            return RecallKernels(_keys(message))
        case "lease":
            endless = message.get("until_s", ...) is None
            return Lease(math.inf if endless else _seconds(message, "until_s"))
        case "attach":
            return Attach()
        case "forget":
            return Forget(_keys(message), _places(message))
        case "shutdown":
            return Shutdown(_seconds(message, "grace_s", 5.0))
        case op:
            raise ProtocolError(f"unknown op {op!r}")


def _start(message: _Object, env_defaults: Mapping[str, str]) -> StartKernels:
    templates = [_template(item, env_defaults) for item in _objects(message, "templates")]
    return StartKernels(
        tuple(_kernel_order(item, templates) for item in _objects(message, "kernels"))
    )


def _template(item: _Object, env_defaults: Mapping[str, str]) -> Template:
    command = item.get("command")
    if (
        not isinstance(command, list)
        or not command
        or not command[0]
        or not all(isinstance(word, str) and "\0" not in word for word in command)
    ):
        raise ProtocolError("'command' must be a list of strings, the program first")
    workdir = item.get("workdir")
    if workdir is not None and (not isinstance(workdir, str) or not workdir.startswith("/")):
        raise ProtocolError("'workdir' must be an absolute path or null")
    log_max_bytes = _integer(item, "log_max_bytes", 64 << 20)
    if log_max_bytes < MIN_LOG_BYTES:
        raise ProtocolError(f"'log_max_bytes' must be at least {MIN_LOG_BYTES}")
    account = _account(item)
    result_bytes = _integer(item, "result_bytes", 0)
    if result_bytes > MAX_RESULT_BYTES:
        raise ProtocolError(f"'result_bytes' must be at most {MAX_RESULT_BYTES}")
    if account is not None:
        env_defaults = {
            **{name: env_defaults[name] for name in env_defaults if name != "TMPDIR"},
            "HOME": account.home,
            "USER": account.name,
            "LOGNAME": account.name,
        }
    program = Program(
        command=tuple(command),
        env={**env_defaults, **_environment(item)},
        workdir=workdir,
        files=_texts(item, "files"),
    )
    return Template(
        program,
        grace_s=_seconds(item, "grace_s", 10.0),
        limits=KernelLimits.of(
            _integer(item, "cpu_milli", 0),
            _integer(item, "memory_bytes", 0),
            _integer(item, "pids_max", 0),
            least_cpu=item.get("least_cpu") is True,
        ),
        log_max_bytes=log_max_bytes,
        disk_bytes=_integer(item, "disk_bytes", 0),
        account=account,
        owner=_text(item, "owner"),
        result_bytes=result_bytes,
        stderr_apart=item.get("stderr_apart") is True,
    )


def _account(item: _Object) -> KernelAccount | None:
    fields = item.get("account")
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise ProtocolError("'account' must be an object or null")
    groups = fields.get("groups")
    if not isinstance(groups, list) or not all(type(group) is int for group in groups):
        raise ProtocolError("'groups' must be a list of numbers")
    account = KernelAccount(
        uid=_integer(fields, "uid"),
        gid=_integer(fields, "gid"),
        groups=tuple(groups),
        name=_text(fields, "name"),
        home=_text(fields, "home"),
        scratch=_text(fields, "scratch"),
        gains_privileges=fields.get("gains_privileges") is True,
    )
    if not account.uid or not account.gid or not account.scratch.startswith("/"):
        raise ProtocolError(f"an account must not be root's, and have a place: {fields}")
    return account


def _kernel_order(item: _Object, templates: list[Template]) -> KernelOrder:
    kernel_id, generation = _key(item)
    template = _integer(item, "template", 0)
    if template >= len(templates):
        raise ProtocolError(f"kernel {kernel_id}: there is no template {template}")
    devices = item.get("devices", [])
    if not isinstance(devices, list) or not all(map(_is_device, devices)):
        raise ProtocolError(f"kernel {kernel_id}: 'devices' must be a list of numbers or names")
    queued = item.get("queued", False)
    if not isinstance(queued, bool):
        raise ProtocolError(f"kernel {kernel_id}: 'queued' must be true or false")
    hold = item.get("hold", False)
    if not isinstance(hold, bool):
        raise ProtocolError(f"kernel {kernel_id}: 'hold' must be true or false")
    return KernelOrder(
        kernel_id,
        generation,
        templates[template],
        _environment(item),
        tuple(devices),
        _integer(item, "device_milli", 1000),
        _text(item, "shape"),
        queued,
        hold,
    )


def _stop_order(item: _Object) -> StopOrder:
    kernel_id, generation = _key(item)
    grace_s = _seconds(item, "grace_s", 10.0)
    return StopOrder(kernel_id, generation, grace_s, _text(item, "reason"))


def _keys(message: _Object) -> tuple[Key, ...]:
    return tuple(_key(item) for item in _objects(message, "kernels"))


def _places(message: _Object) -> tuple[str, ...]:
    places = message.get("places", [])
    if not isinstance(places, list) or not all(map(_is_absolute, places)):
        raise ProtocolError("'places' must be a list of absolute paths")
    return tuple(places)


def _is_absolute(path: object) -> bool:
    return isinstance(path, str) and path.startswith("/") and "\0" not in path


def _key(item: _Object) -> Key:
    kernel_id = item.get("id")
    if not isinstance(kernel_id, str) or _ID.fullmatch(kernel_id) is None:
        raise ProtocolError(
            f"{kernel_id!r} is no kernel id: 1 to 128 letters, digits, '-', '_' or '.'"
        )
    return kernel_id, _integer(item, "generation")


def _environment(item: _Object) -> Mapping[str, str]:
    environment = _texts(item, "env")
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise ProtocolError(f"{name!r} cannot be an environment variable, or its value cannot")
    return environment


def _texts(item: _Object, name: str) -> dict[str, str]:
    texts = item.get(name) or {}
    if not isinstance(texts, dict) or not all(map(_is_text, texts.values())):
        raise ProtocolError(f"'{name}' must be an object of strings")
    return texts


def _text(item: _Object, name: str) -> str:
    text = item.get(name, "")
    if not isinstance(text, str):
        raise ProtocolError(f"'{name}' must be a string")
    return text


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_device(value: object) -> bool:
    return type(value) is int or type(value) is str


def _objects(message: _Object, name: str) -> list[_Object]:
    items = message.get(name)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ProtocolError(f"'{name}' must be a list of objects")
    return items


def _integer(item: _Object, name: str, default: int | None = None) -> int:
    value = item.get(name, default)
    if type(value) is not int or not 0 <= value < 1 << 63:  # type: bool is no number here
        raise ProtocolError(f"'{name}' must be a whole number, zero or more")
    return value


def _seconds(item: _Object, name: str, default: float | None = None) -> float:
    value = item.get(name, default)
    if type(value) not in (int, float) or not isinstance(value, int | float):
        raise ProtocolError(f"'{name}' must be a number of seconds")
    if not 0 <= value < math.inf:  # false for NaN, which Python accepts in JSON
        raise ProtocolError(f"'{name}' must be zero or more")
    return float(value)
