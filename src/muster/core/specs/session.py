"""A session as people write it: one to many kernels that start together or not at all."""

import re
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from muster.core.errors import Problem
from muster.core.ids import looks_like_id
from muster.core.relative_paths import file_and_directory, wrong_path
from muster.core.specs.amounts import (
    Duration,
    Environment,
    Moment,
    Name,
    OwnerName,
    PathText,
    PositiveDuration,
    ResourcesSpec,
    Spec,
    Text,
    Whole,
)
from muster.core.specs.first_line import MARK, interpreted, interpreter_of
from muster.core.specs.notify import Channels
from muster.core.specs.placement import ANYWHERE, Dependencies, PlacementSpec
from muster.core.specs.work import Priority
from muster.core.specs.written_numbers import written_as

MAX_GANG = 10_000
MAX_KINDS = 256
"""Kinds of kernels in a session; a pass looks for agents for each kind by itself."""
MAX_FILES_BYTES = 256 * 1024
MAX_USES = 32
"""Deployments that a process may use."""


class SessionType(StrEnum):
    INTERACTIVE = "interactive"
    BATCH = "batch"
    INFERENCE = "inference"


def _command(value: Any) -> Any:
    """The argument list for a command: text is for the interpreter that its first line names, else
    for the shell; a list stays as it is."""
    if isinstance(value, str):
        if not value.strip():
            raise ValueError("expected a command, such as [python, train.py] or 'make all'")
        return interpreted(value)
    if isinstance(value, bool | int | float):
        written = written_as(value) or str(value).lower()
        raise ValueError(f'expected text: quote it, as "{written}"')
    return value


Command = Annotated[
    list[Text],
    BeforeValidator(_command),
    Field(min_length=1, max_length=10_000),
]


class Stderr(StrEnum):
    """The place of what a program writes to stderr."""

    TOGETHER = "together"
    APART = "apart"


_DEFAULT_RESOURCES = ResourcesSpec()  # one for all: a default is copied deeply for each spec


CLIENT_VARIABLES = frozenset(
    f"MUSTER_{name}" for name in ("URL", "TOKEN", "HOME", "CA", "JOIN_TOKEN", "DEBUG")
)
"""Variables of Muster's that a spec may set, for a program that talks to a cluster itself."""


def url_variable(name: str) -> str:
    """The variable that tells the address of the deployment of this name: in capitals, with `_` in
    place of what may not be in a variable's name."""
    return "MUSTER_URL_" + re.sub("[^A-Z0-9]", "_", name.upper())


class Process(Spec):
    """The process of a kernel; shared by the specs of sessions and jobs.

    Args:
        command: program and arguments; text is for `/bin/sh`, or for the interpreter that its first
            line names, such as `#!/bin/bash`.
        env: variables of its environment, by name; MUSTER_* are Muster's.
        environment: `caller`: whoever hands it in adds PATH, VIRTUAL_ENV, CONDA_PREFIX, PYTHONPATH
            and LANG to ``env``, as they are there; `clean`: none of them. The command line and the
            Python client take `caller` when it is left out; the API itself adds nothing.
        workdir: an absolute directory on the agents (shared by them, or one machine), inside the
            group's workspaces; without it each kernel gets a scratch directory of its own.
        files: text by relative path, written to the scratch directory first; each can be run, as
            `./run.sh`.
        resources: what each kernel asks for; also its limits.
        ports: number of ports that are reserved on the agent and told in MUSTER_PORTS.
        grace: time between SIGTERM and SIGKILL.
        uses: deployments whose addresses it gets, as MUSTER_URL_CHAT for `chat`; it does not wait
            for them, which `after: [chat:healthy]` does.
        stderr: ``together`` with stdout in one output, in the order written; or ``apart``, so that
            `muster logs --stderr` shows it alone.
    """

    command: Command
    env: Environment = Field(default_factory=dict)
    environment: Literal["caller", "clean"] | None = None
    workdir: PathText | None = None
    files: Annotated[dict[PathText, Text], Field(max_length=1000)] = Field(default_factory=dict)
    resources: ResourcesSpec = Field(default_factory=lambda: _DEFAULT_RESOURCES)
    ports: Annotated[Whole, Field(ge=0, le=64)] = 0
    grace: Annotated[Duration, Field(le=3600)] = 10.0
    uses: Annotated[tuple[Name, ...], Field(max_length=MAX_USES)] = ()
    stderr: Stderr = Stderr.TOGETHER

    @field_validator("command")
    @classmethod
    def _some_command(cls, command: list[str]) -> list[str]:
        if not command[0]:
            raise ValueError("expected the name of a program first")
        return command

    @field_validator("workdir")
    @classmethod
    def _absolute(cls, workdir: str | None) -> str | None:
        if workdir is None:
            return None
        if not workdir.startswith("/") or ".." in workdir.split("/"):
            raise ValueError("expected an absolute path without '..', or nothing for a scratch one")
        return workdir

    @field_validator("files")
    @classmethod
    def _bounded(cls, files: dict[str, str]) -> dict[str, str]:
        if sum(len(text.encode()) for text in files.values()) > MAX_FILES_BYTES:
            raise ValueError(f"expected at most {MAX_FILES_BYTES // 1024} KiB of text in all")
        return files

    @model_validator(mode="after")
    def _files_need_scratch(self) -> "Process":
        if self.files and self.workdir is not None:
            raise ValueError(
                "files are written to the scratch directory: leave out either files or workdir"
            )
        return self

    def contradictions(self) -> Iterator[Problem]:
        yield from self._overridden()
        variables: dict[str, str] = {}
        for name in self.uses:
            other = variables.setdefault(url_variable(name), name)
            if other != name:
                expected = f"{url_variable(name)} is the variable of {other!r}: use one of them"
                yield Problem("uses", repr(name), expected)
        for path in self.files:
            if (wrong := wrong_path(path)) is not None:
                yield Problem("files", repr(path[:80]), wrong)
            if (wrong := _wrong_first_line(self.files[path])) is not None:
                yield Problem("files", repr(path[:80]), wrong)
        if (both := file_and_directory(self.files)) is not None:
            yield Problem("files", repr(both[:80]), "this is a file, and a directory of another")

    def _overridden(self) -> Iterator[Problem]:
        """Problems with variables in ``env`` that Muster sets itself, whatever the spec says."""
        for name in self.env:
            if name.startswith("MUSTER_") and name not in CLIENT_VARIABLES:
                yield Problem(
                    f"env.{name}", "", "Muster sets MUSTER_* itself: give it another name"
                )


def _wrong_first_line(text: str) -> str | None:
    """The problem with the first line of a script; None if there is none."""
    if text.startswith(MARK):
        try:
            interpreter_of(text)
        except ValueError as error:
            return str(error)
    return None


def like_an_id(name: str | None) -> Iterator[Problem]:
    """The problem with a name that nobody could refer to, because it would be read as an id."""
    if name is not None and looks_like_id(name):
        yield Problem("name", repr(name), "this would be taken for an id: choose another name")


Port = Annotated[Whole, Field(ge=1, le=65535)]


class KernelSpec(Process):
    """One kernel of a session, or several alike.

    Args:
        replicas: number of equal kernels.
        port: the port on which the program listens by itself, for a session of one kernel: it is
            started only on a machine where nobody else has that port.
    """

    replicas: Annotated[Whole, Field(ge=1, le=MAX_GANG)] = 1
    port: Port | None = None


def _kernels(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError("expected a list, such as [{command: ./worker, replicas: 2}]")
    return value


class SessionSpec(Spec):
    """A session handed in by itself, without a job over it: it is not retried when it ends.

    Args:
        name: the session's name.
        project: the owner's project for which it counts; the owner's first when left out.
        type: the session's purpose, by which policies may treat it.
        group: the scaling group whose agents it may use.
        kernels: its kernels, which start together or not at all.
        leader: the index of the kernel whose good end is the session's: the others are stopped
            then. Without one a batch session is over once all of its kernels have ended well.
        priority: higher goes first.
        timeout: longest run; past it the session is ended.
        scheduling_timeout: longest wait for a place; past it the session is cancelled.
        placement: the agents for its kernels.
        after: other work, and the states that it must reach before the session starts.
        not_before: the earliest start.
        notify: channels that are told of its end, as a list of URLs, or of {url: URL, on: failure}.
    """

    kind: Literal["session"] = "session"
    name: Name | None = None
    project: OwnerName | None = None
    type: SessionType = SessionType.BATCH
    group: Name = "default"
    kernels: Annotated[
        list[KernelSpec],
        BeforeValidator(_kernels),
        Field(min_length=1, max_length=MAX_GANG),
    ]
    leader: Annotated[Whole, Field(ge=0)] | None = None
    priority: Priority = 50
    timeout: PositiveDuration | None = None
    scheduling_timeout: PositiveDuration | None = None
    placement: PlacementSpec = Field(default_factory=lambda: ANYWHERE)
    after: Dependencies = ()
    not_before: Moment | None = None
    notify: Channels = ()

    @model_validator(mode="after")
    def _size(self) -> "SessionSpec":
        if sum(kernel.replicas for kernel in self.kernels) > MAX_GANG:
            raise ValueError(f"expected at most {MAX_GANG} kernels in a session")
        return self

    def contradictions(self) -> Iterator[Problem]:
        yield from self.placement.contradictions()
        yield from like_an_id(self.name)
        if len(self.kernels) > MAX_KINDS:
            expected = f"expected at most {MAX_KINDS} kinds of kernels; replicas make more of one"
            yield Problem("kernels", f"{len(self.kernels)} of them", expected)
        if self.leader is not None:
            yield from self._without_such_a_leader(self.leader)
        alone = len(self.kernels) == 1 and self.kernels[0].replicas == 1
        for index, kernel in enumerate(self.kernels):
            if kernel.port is not None and not alone:
                expected = "this is for sessions of one kernel: use ports, and MUSTER_PORTS"
                yield Problem(f"kernels.{index}.port", str(kernel.port), expected)
            for problem in kernel.contradictions():
                yield replace(problem, field=f"kernels.{index}.{problem.field}")

    def _without_such_a_leader(self, leader: int) -> Iterator[Problem]:
        count = sum(kernel.replicas for kernel in self.kernels)
        if self.type is not SessionType.BATCH:
            expected = f"a session of type {self.type} is over with its first kernel that ends"
            yield Problem("leader", str(leader), f"{expected}: leave it out")
        elif leader >= count:
            expected = f"expected the index of a kernel, below their number, which is {count}"
            yield Problem("leader", str(leader), expected)


KIND = SessionSpec
