"""The handing over of kernels to the supervisor: what other threads see of them, and which are
refused."""

import asyncio
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import cast

import pytest
from proving.hollow.virtual_clock import VirtualClock
from tests.wire.controller import template

from muster.agent.account_errors import NoAccount, NoUid, UidClash
from muster.agent.accounts import Account, MachineAccounts
from muster.agent.kernels import Kernels
from muster.agent.ports import PreparedPorts
from muster.agent.removed_outputs import RemovedOutputs
from muster.agent.services import OwnServices
from muster.agent.supervisor_link import AccountsOf, SupervisorLink, Terms
from muster.core.ids import KernelId
from muster.core.reasons import ReasonCode
from muster.core.uids import ClusterUid
from muster.wire.messages import KernelKey, ReportKind, Start

KEY: KernelKey = (KernelId("krn-1"), 1)


class OwnAccount:
    def of(self, owner: str, uid: ClusterUid | None) -> Account | None:
        return None


class Link:
    """A supervisor that makes directories as soon as it is told; ``seen`` is whether the agent
    knew by then that their kernels are live."""

    def __init__(self, kernels: Kernels, too_large: bool) -> None:
        self.kernels, self.too_large = kernels, too_large
        self.seen: list[bool] = []

    def start(self, starts: Sequence[Start], terms: Terms, accounts: AccountsOf) -> list[Start]:
        self.seen += [self.kernels.is_live((each.kernel, each.generation)) for each in starts]
        return [*starts] if self.too_large else []


@contextmanager
def kernels_with(accounts: object, directory: Path) -> Iterator[Kernels]:
    with closing(PreparedPorts(directory, range(20_000, 20_010), random.Random(1))) as ports:
        yield Kernels(
            ports,
            directory,
            RemovedOutputs(directory / "removed-outputs"),
            cast(MachineAccounts, accounts),
            cast(OwnServices, None),
            Terms(log_max_bytes=65_536, pids_max=100, scratch_max_bytes=0),
            VirtualClock(),
        )


@pytest.mark.parametrize("too_large", [False, True])
def test_kernel_is_live_before_its_first_file_is_there(tmp_path: Path, too_large: bool) -> None:
    with kernels_with(OwnAccount(), tmp_path) as kernels:
        link = Link(kernels, too_large)
        kernels.use(cast(SupervisorLink, link))
        kernels.obey([Start(*KEY, template("true"), {})])
        assert link.seen == [True], "or its scratch directory is measured before it is filled"
        assert kernels.is_live(KEY) is not too_large
        reasons = [each.reason for each in kernels.outbox.take(10).reports]
        assert reasons == [ReasonCode.CREATE_FAILED] * too_large


class Refusing:
    """Accounts of which none is to be had, and the threads that asked."""

    def __init__(self, lack: NoAccount) -> None:
        self.lack = lack
        self.asked: list[tuple[str, ClusterUid | None, bool]] = []

    def knows(self, owner: str, uid: ClusterUid | None) -> bool:
        return False

    def of(self, owner: str, uid: ClusterUid | None) -> Account | None:
        here = threading.current_thread() is threading.main_thread()
        self.asked.append((owner, uid, here))
        raise self.lack


@pytest.mark.parametrize(
    ("lack", "reason"),
    [
        (NoAccount("why"), ReasonCode.NO_ACCOUNT),
        (UidClash("why"), ReasonCode.UID_CLASH),
        (NoUid("why"), ReasonCode.NO_UID),
    ],
)
def test_lack_of_an_account_is_reported_with_its_reason(
    tmp_path: Path, lack: NoAccount, reason: ReasonCode
) -> None:
    accounts, uid = Refusing(lack), ClusterUid("c1", 400_000)
    with kernels_with(accounts, tmp_path) as kernels:
        link = Link(kernels, too_large=False)
        kernels.use(cast(SupervisorLink, link))
        start = Start(*KEY, template("true", uid=uid), {})
        asyncio.run(kernels.find_accounts([start]))
        kernels.obey([start])
        assert link.seen == []
        (report,) = kernels.outbox.take(10).reports
        assert (report.kind, report.reason, report.detail) == (
            ReportKind.CREATE_FAILED,
            reason,
            "why",
        )
    owner = start.template.owner
    assert accounts.asked == [(owner, uid, False), (owner, uid, True)], (
        "a home is handed over beside the event loop"
    )
