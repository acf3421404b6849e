"""Why the kernels of an owner cannot run on a machine as its user."""

from typing import ClassVar

from muster.core.errors import MusterError
from muster.core.reasons import ReasonCode


class NoAccount(MusterError):
    """An owner's kernels cannot run here; the text says why and what to do."""

    code: ClassVar[ReasonCode] = ReasonCode.NO_ACCOUNT


class UidClash(NoAccount):
    """The uid that the cluster allotted to a user is not to be had on this machine."""

    code = ReasonCode.UID_CLASH


class NoUid(NoAccount):
    """The cluster has no uid left for a user."""

    code = ReasonCode.NO_UID
