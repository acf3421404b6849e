"""The base of all answers of the API, errors, and the parts that many answers share.

Times are seconds since the epoch, amounts the canonical integers of ``core.resources``. A client
ignores keys that it does not know, so that a newer server can say more.

``msgspec.json`` writes views and checks them when they are read. They are no pydantic models,
because every command imports them, and pydantic takes as long to import as everything else
together.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Any, dataclass_transform

import msgspec

if TYPE_CHECKING:
    from muster.core.errors import Problem
    from muster.core.owner import Owner
    from muster.core.reasons import Reason
    from muster.core.resources import Resources

VIEW_KEY = "x-view"


class _Named(msgspec.StructMeta):
    """Makes the fields of every view keyword-only: structures do not inherit that option."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> Any:
        return super().__new__(cls, name, bases, namespace, kw_only=True, **options)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class View(msgspec.Struct, metaclass=_Named, frozen=True):
    """Base of every answer of the API; values never change afterwards."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> Any:
        """A schema for FastAPI, because endpoints name the views with which they answer; FastAPI
        neither reads nor writes views."""
        from pydantic_core import core_schema

        return core_schema.any_schema()

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: object, _handler: object) -> dict[str, str]:
        """A placeholder in the API's description, until the view's schema is filled in."""
        return {VIEW_KEY: cls.__name__}


class RecordView(View):
    """Base of the views of one record; the API tells ``status`` of jobs and tasks as ``state``.
    ``reason`` is why the record is in this status, if there is one to tell."""

    id: str

    @property
    def status(self) -> str:
        raise NotImplementedError

    @property
    def reason(self) -> "ReasonView | None":
        raise NotImplementedError

    @property
    def standing(self) -> str:
        """How the record stands, as lists and explanations tell people: its status, unless that
        does not say whether anything runs or serves."""
        return self.status


class ErrorCode(StrEnum):
    """The kind of an error, for programs; the sentence beside it is for people."""

    INVALID = "invalid"  # 422, with problems
    TOO_LARGE = "too_large"  # 413
    UNAUTHENTICATED = "unauthenticated"  # 401
    FORBIDDEN = "forbidden"  # 403
    NOT_FOUND = "not_found"  # 404
    AMBIGUOUS = "ambiguous"  # 409
    CONFLICT = "conflict"  # 409
    BUSY = "busy"  # 429: the same request may pass later
    UNAVAILABLE = "unavailable"  # 503: the same request may pass later
    AGENT_UNREACHABLE = "agent_unreachable"  # 502
    OUTPUT_REMOVED = "output_removed"  # 410: there was output, and it is no longer kept
    REFUSED = "refused"  # 400: any other, as the sentence says
    INTERNAL = "internal"  # 500: a defect of Muster


class ProblemView(View):
    """One thing wrong with a spec: a dotted path, the value that stood there, the values that
    may."""

    field: str
    value: str
    expected: str

    @staticmethod
    def of(problem: "Problem") -> "ProblemView":
        return ProblemView(field=problem.field, value=problem.value, expected=problem.expected)


class ErrorView(View):
    """Any answer that is not a success. ``error`` is a sentence for a person."""

    error: str
    code: ErrorCode
    problems: tuple[ProblemView, ...] = ()


class OwnerView(View):
    domain: str
    project: str
    user: str

    @staticmethod
    def of(owner: "Owner") -> "OwnerView":
        return OwnerView(domain=owner.domain, project=owner.project, user=owner.user)

    def __str__(self) -> str:
        return f"{self.domain}/{self.project}/{self.user}"


class ReasonView(View):
    """A reason: its code, its kind (``core.reasons.ReasonKind``), its texts, and the numbers that
    these tell, by name. Amounts among the numbers are canonical, in the unit that the number
    ``unit`` names; in reasons that older versions stored they are texts with their units."""

    code: str
    kind: str
    sentence: str
    remedy: str = ""
    numbers: dict[str, str | int | float | bool | None] = {}

    @staticmethod
    def of(reason: "Reason") -> "ReasonView":
        return ReasonView(
            code=reason.code,
            kind=reason.kind,
            sentence=reason.sentence(),
            remedy=reason.remedy(),
            numbers=reason.public_numbers(),
        )


class ResourcesView(View):
    """Amounts: thousandths of processors, bytes, thousandths of GPUs and of named extras."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    gpu_milli: int = 0
    extra: dict[str, int] = {}

    @staticmethod
    def of(amount: "Resources") -> "ResourcesView":
        return ResourcesView(
            cpu_milli=amount.cpu_milli,
            memory_bytes=amount.memory_bytes,
            disk_bytes=amount.disk_bytes,
            gpu_milli=amount.gpu_milli,
            extra=dict(amount.extra),
        )

    def resources(self) -> "Resources":
        """The amounts as ``core.resources.Resources``, whose ``describe`` is meant for people."""
        from muster.core.resources import Resources

        return Resources.with_extra(
            self.cpu_milli, self.memory_bytes, self.disk_bytes, self.gpu_milli, self.extra
        )
