"""The supervisor's spawner processes: one for each user whose kernels it holds."""

import math
import os
import socket
import sys
from collections.abc import Mapping

from muster.agent.supervisor.failures import CreateFailed, create_failure
from muster.agent.supervisor.kernel import CreateFailure, OwnKernel
from muster.agent.supervisor.loop import Loop
from muster.agent.supervisor.protocol import KernelAccount, encode
from muster.agent.supervisor.spawn_messages import MAX_MESSAGE_BYTES, SOCKET_FD
from muster.agent.supervisor.spawner import Launch
from muster.agent.supervisor.user_spawner import SpawnListener, UserSpawner

MAX_USERS = 128

_IDLE_S = 60.0
_LOOK_PERIOD_S = 5.0
_SO_SNDBUFFORCE = 32


class UserSpawners:
    """The spawner processes by user; they are started when needed, and end when idle."""

    def __init__(
        self, loop: Loop, homes: Mapping[str, str], open_files: tuple[int, int] | None
    ) -> None:
        """`homes` are the files through which a process comes home, one for each hierarchy of
        cgroups."""
        self._loop = loop
        self.listener: SpawnListener | None = None
        self._homes = homes
        self._open_files = open_files
        self._spawners: dict[int, UserSpawner] = {}
        self._look_s = 0.0  # when to look for idle ones
        self._retired: set[UserSpawner] = set()  # they have kernels still
        self._lease_end_s = math.inf

    def start(
        self, kernel: OwnKernel, account: KernelAccount, launch: Launch, *, standby: bool = False
    ) -> None:
        """Have the user's process spawn a kernel, or let it stand by if ``wants_standby`` allows
        it; the listener hears the result.

        Raises:
            CreateFailed: there is no such process, and none can be started.
        """
        spawner = self._spawners.get(account.uid)
        if spawner is not None and spawner.account != account:  # the account's groups have changed
            self._retire(spawner)
            spawner = None
        if spawner is None:
            spawner = self._begin(account)
        if standby:
            spawner.tell_lease(self._lease_end_s)
        spawner.start(kernel, launch, standby=standby)

    def wants_standby(self, shape: str, account: KernelAccount) -> bool:
        """Whether kernels of the user run in whose places one more of their shape could follow."""
        spawner = self._spawners.get(account.uid)
        return spawner is not None and spawner.wants_standby(shape) and spawner.account == account

    def launch_now(self, kernel: OwnKernel) -> None:
        """Have a kernel that stands by spawned at once, unless it was spawned by now."""
        for spawner in self._all():
            if spawner.stands_by(kernel):
                spawner.launch_now(kernel)

    def drop(self, kernel: OwnKernel) -> None:
        """Have a kernel that stands by dropped, unless it was spawned by now; the listener hears
        which of these happened."""
        for spawner in self._all():
            if spawner.stands_by(kernel):
                spawner.drop(kernel)

    def renew_lease(self, until_s: float) -> None:
        """Let kernels that stand by be spawned until then, even if this process stands still."""
        self._lease_end_s = until_s
        for spawner in self._all():
            if spawner.has_standbys:
                spawner.tell_lease(until_s)

    def give_up(self, kernel: OwnKernel) -> None:
        """Kill the process that should have told of a kernel's end, if there is one."""
        for spawner in self._all():
            if spawner.owes_end_of(kernel):
                spawner.kill()

    def close_idle(self, now_s: float) -> None:
        """End processes that have been idle for long."""
        if now_s < self._look_s:
            return
        self._look_s = now_s + _LOOK_PERIOD_S
        for spawner in list(self._spawners.values()):
            if spawner.idle and now_s > spawner.used_s + _IDLE_S:
                self._retire(spawner)

    def _all(self) -> list[UserSpawner]:
        return [*self._spawners.values(), *self._retired]

    def _on_ended(self, spawner: UserSpawner) -> None:
        self._retired.discard(spawner)
        if self._spawners.get(spawner.account.uid) is spawner:
            del self._spawners[spawner.account.uid]

    def _begin(self, account: KernelAccount) -> UserSpawner:
        """
        Raises:
            CreateFailed: there are too many processes, or another cannot be started.
        """
        assert self.listener is not None
        if len(self._spawners) >= MAX_USERS:
            idle = [spawner for spawner in self._spawners.values() if spawner.idle]
            if not idle:
                detail = f"kernels of {MAX_USERS} users run here already"
                raise CreateFailed(CreateFailure.NO_PROCESSES, detail)
            self._retire(min(idle, key=lambda spawner: spawner.used_s))
        try:
            pid, peer = _spawn(account, self._homes, self._open_files)
            self.listener.helper_spawned(pid)
            spawner = UserSpawner(account, pid, peer, self._loop, self.listener, self._on_ended)
        except OSError as error:
            raise create_failure(error) from None
        self._spawners[account.uid] = spawner
        return spawner

    def _retire(self, spawner: UserSpawner) -> None:
        """Give the process no more work; it ends once its kernels have."""
        del self._spawners[spawner.account.uid]
        self._retired.add(spawner)
        spawner.retire()


def _spawn(
    account: KernelAccount, homes: Mapping[str, str], open_files: tuple[int, int] | None
) -> tuple[int, socket.socket]:
    """Start a process that becomes the account's user; also returns the socket to it.

    Raises:
        OSError: the process cannot be started.
    """
    script = f"{__file__.rsplit('/', 1)[0]}/__main__.py"
    settings = encode(
        {
            "uid": account.uid,
            "gid": account.gid,
            "groups": account.groups,
            "gains_privileges": account.gains_privileges,
            "open_files": open_files,
            "homes": dict(homes),
        }
    )
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            try:
                ours.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, MAX_MESSAGE_BYTES)
            except PermissionError:  # root in a container, without CAP_NET_ADMIN
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_MESSAGE_BYTES)
            pid = os.posix_spawn(
                sys.executable,
                (sys.executable, "-I", "-S", script, "--spawner", settings),
                {},
                file_actions=((os.POSIX_SPAWN_DUP2, theirs.fileno(), SOCKET_FD),),
                setsid=True,
                setsigmask=(),
            )
        except OSError:
            ours.close()
            raise
    return pid, ours
