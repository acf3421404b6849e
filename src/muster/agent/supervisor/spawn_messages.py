"""The messages between the supervisor and a process that spawns the kernels of a user.

Each message wakes a process up, which costs as much as a twentieth of a short kernel. So the common
part of many kernels is sent once, and the process sends several facts together.

To the process go marshalled tuples, which take a fifth of the time of JSON and require trust in
their writer: the supervisor, which is root.

    ["program", place, command, environment, workdir, files] keep this program at the place, instead
        of the former one
    ["launch", number, place, own environment, scratch, hierarchies, shape, waits, outputs] spawn
        the program at the place, with the descriptors of its output (so many; of stdout and stderr
        where these are two, and where it is not told, one), of its cgroups and of their population;
        now, or if it waits, as soon as a kernel of its shape has ended
    ["now", shape, number] spawn this one that waits
    ["drop", shape, number] do not spawn this one that waits
    ["lease", until] spawn none that waits from then on, in seconds since boot

From it, which is not trusted as much, come facts of one size, as many as there are to tell, or one
failure: a zero and JSON.
"""

import json
import marshal
import struct
from collections.abc import Iterator
from typing import Any

from muster.agent.supervisor.failures import CannotExecute, CreateFailed
from muster.agent.supervisor.kernel import CreateFailure, EndReason
from muster.agent.supervisor.protocol import MAX_LINE_BYTES, Program, encode
from muster.agent.supervisor.spawner import Launch

VERSION = 2
"""The version, which is sent first, because the files of a process may be newer than the supervisor
that starts it."""

SOCKET_FD = 3
MAX_MESSAGE_BYTES = 2 * MAX_LINE_BYTES  # a line of an order, and what JSON may add to it
MAX_ANSWER_BYTES = 64 << 10
MAX_PLACES = 8  # for kept programs, and one more for a large one
MAX_FDS = 8

READY, SPAWNED, ENDED, DROPPED = 1, 2, 3, 4

_FACT = struct.Struct("=Biqqqd")
_FAILURE = b"\0"
_MAX_DETAIL_CHARS = 1000

Fact = tuple[int, int, int, int, int, float]
"""(READY, 0, VERSION, 0, 0, 0), (SPAWNED, pid, number of the launch, bounds of its start time in
clock ticks, seconds since the epoch), (ENDED, pid, wait status, number of the launch that takes its
place or 0, 0, 0) or (DROPPED, 0, number of the launch, 0, 0, 0)."""

MAX_FACTS = MAX_ANSWER_BYTES // _FACT.size


class Garbled(Exception):
    """The message has none of the forms above."""


def pack_fact(
    kind: int, pid: int, number: int, low: int = 0, high: int = 0, at: float = 0.0
) -> bytes:
    return _FACT.pack(kind, pid, number, low, high, at)


def pack_failure(number: int, failure: CreateFailed | CannotExecute) -> bytes:
    exit_code = failure.exit_code if isinstance(failure, CannotExecute) else None
    detail = failure.detail[:_MAX_DETAIL_CHARS]
    return _FAILURE + encode([number, failure.reason, exit_code, detail]).encode()


def is_failure(answer: memoryview) -> bool:
    return answer[0] == _FAILURE[0]


def facts(answer: memoryview) -> Iterator[Fact]:
    """
    Raises:
        Garbled: the answer holds something else.
    """
    try:
        return _FACT.iter_unpack(answer)
    except struct.error as error:
        raise Garbled(str(error)) from None


def failure_of(answer: memoryview) -> tuple[int, CreateFailed | CannotExecute]:
    """The number of a launch, and its failure.

    Raises:
        Garbled: the answer is something else.
    """
    try:
        match json.loads(bytes(answer[1:])):
            case [int(number), str(reason), None, str(detail)]:
                return number, CreateFailed(CreateFailure(reason), detail)
            case [int(number), str(reason), int(exit_code), str(detail)]:
                return number, CannotExecute(EndReason(reason), exit_code, detail)
    except (ValueError, RecursionError) as error:
        raise Garbled(str(error)) from None
    raise Garbled("no failure")


def program_message(place: int, program: Program) -> bytes:
    env, files = dict(program.env), dict(program.files)
    return marshal.dumps(("program", place, program.command, env, program.workdir, files))


def launch_message(
    number: int,
    place: int,
    launch: Launch,
    hierarchies: tuple[str, ...],
    shape: str,
    outputs: int,
    *,
    waits: bool,
) -> bytes:
    own = launch.env, launch.scratch
    return marshal.dumps(("launch", number, place, *own, hierarchies, shape, waits, outputs))


def now_message(shape: str, number: int) -> bytes:
    return marshal.dumps(("now", shape, number))


def drop_message(shape: str, number: int) -> bytes:
    return marshal.dumps(("drop", shape, number))


def lease_message(until_s: float) -> bytes:
    return marshal.dumps(("lease", until_s))


def read_message(message: memoryview) -> tuple[Any, ...]:
    """Read one of the messages to the process."""
    words: tuple[Any, ...] = marshal.loads(message)
    return words
