"""Starting kernels: environment, pipe, cgroups, and a process to spawn the main one."""

import os
import resource
from collections.abc import Mapping

from muster.agent.supervisor import process_tree
from muster.agent.supervisor.cgroups import Cgroups, LimitsKind
from muster.agent.supervisor.failures import CreateFailed, create_failure
from muster.agent.supervisor.kernel import CreateFailure, Event, OwnKernel
from muster.agent.supervisor.output import OutputPipes
from muster.agent.supervisor.protocol import KernelAccount, KernelOrder, Template, file_name
from muster.agent.supervisor.scratch import (
    RESULT_FILE,
    ScratchDirectories,
    Tenant,
    take_result,
)
from muster.agent.supervisor.spawner import Launch, Spawned, Spawner
from muster.agent.supervisor.user_spawners import UserSpawners

_INHERITED = ("PATH", "HOME", "LANG", "USER", "TZ", "TMPDIR")
_MAX_OPEN_FILES = 1 << 16


def default_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The variables of a kernel's environment, unless its order overrides them."""
    inherited = {name: own[name] for name in _INHERITED if name in own}
    return {"PATH": os.defpath, "PYTHONUNBUFFERED": "1", **inherited}


class Starter:
    """Makes kernels out of orders. A failed attempt leaves nothing behind."""

    def __init__(
        self,
        directory: str,
        outputs: OutputPipes,
        scratch: ScratchDirectories,
        spawner: Spawner,
        user_spawners: UserSpawners,
        cgroups: Cgroups | None,
    ) -> None:
        self.limits_kind = LimitsKind.NONE if cgroups is None else cgroups.kind
        self._directory = directory
        null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null_fd, 0)  # inherited by every kernel as its stdin
        os.close(null_fd)
        self._outputs = outputs
        self._own_ids = os.getuid(), os.getgid()
        self._scratch = scratch
        self._cgroups = cgroups
        self._spawner = spawner
        self._user_spawners = user_spawners

    def make_ready(self, kernel: OwnKernel, order: KernelOrder) -> None:
        """Take the machine's resources that a kernel needs before it is spawned.

        Raises:
            CreateFailed: something of this machine is missing.
        """
        template = order.template
        try:
            self._open(kernel, template)
        except OSError as error:
            self.clean_up(kernel)
            raise create_failure(error) from None
        # Others may see other directories than this process does.
        workdir = template.program.workdir if template.account is None else None
        if workdir is not None and not os.path.isdir(workdir):  # noqa: PTH112
            self.clean_up(kernel)
            raise CreateFailed(CreateFailure.WORKDIR_MISSING, f"{workdir}: no such directory")

    def start(self, kernel: OwnKernel, order: KernelOrder, *, standby: bool = False) -> bool:
        """Spawn the kernel's main process; false if a process of its user was told to spawn it, and
        the `SpawnListener` will hear of the outcome.

        Args:
            standby: it has an account, one more `wants_standby`, and it is to be spawned only once
                another of its shape has ended.

        Raises:
            CreateFailed: something of this machine is missing.
            CannotExecute: the command is at fault.
        """
        account = order.template.account
        kernel.uid = os.getuid() if account is None else account.uid
        try:
            self._open(kernel, order.template)
            self._make_scratch(kernel, order.template)
            launch = Launch(
                order.template.program, self._own_environment(kernel, order), kernel.scratch
            )
            assert kernel.output is not None
            if account is not None:
                # Without this /dev/stdout and /dev/stderr, which open the pipe anew, would be
                # refused to it.
                for write_fd in kernel.output.write_fds:
                    os.fchown(write_fd, account.uid, account.gid)
                self._user_spawners.start(kernel, account, launch, standby=standby)
                return False
            entry_fds = kernel.slot.entry_fds if kernel.slot is not None else ()
            home_fds = kernel.slot.home_fds if kernel.slot is not None else ()
            spawned = self._spawner.spawn(launch, kernel.output.write_fds, entry_fds, home_fds)
        except OSError as error:
            self.clean_up(kernel)
            raise create_failure(error) from None
        except Exception:
            self.clean_up(kernel)
            raise
        note_spawned(kernel, spawned)
        return True

    def wants_standby(self, shape: str, account: KernelAccount) -> bool:
        """Whether one more kernel of the user's and of the shape may stand by."""
        return self._user_spawners.wants_standby(shape, account)

    def launch_now(self, kernel: OwnKernel) -> None:
        """Have a kernel that stands by spawned at once, unless it was spawned by now."""
        self._user_spawners.launch_now(kernel)

    def drop(self, kernel: OwnKernel) -> None:
        """Have a kernel that stands by dropped, unless it was spawned by now; the `SpawnListener`
        hears which of these happened."""
        self._user_spawners.drop(kernel)

    def renew_lease(self, until_s: float) -> None:
        """Let kernels that stand by be spawned until then, in seconds since boot, even if this
        process should stand still."""
        self._user_spawners.renew_lease(until_s)

    def give_up(self, kernel: OwnKernel) -> None:
        """Stop waiting for the process that should have reported a killed kernel's end, if there is
        one."""
        self._user_spawners.give_up(kernel)

    def enforce(self, kernel: OwnKernel, template: Template) -> None:
        """Set the limits of a kernel that was spawned.

        Raises:
            LimitTooLow: the kernel takes more memory already.
            OSError: the limits cannot be set.
        """
        if kernel.slot is not None:
            kernel.slot.enforce(template.limits)

    def add_result(self, kernel: OwnKernel, event: Event) -> None:
        """Add the text that a kernel left to the event of its end, if its order asks for one and it
        has left one."""
        limit_bytes = 0 if kernel.order is None else kernel.order.template.result_bytes
        if limit_bytes and kernel.scratch:
            result = take_result(kernel.scratch, kernel.uid, limit_bytes)
            if result is not None:
                event["result"] = result

    def clean_up(self, kernel: OwnKernel) -> int:
        """Give back the resources of a kernel, once none of its processes is left.

        Returns how many bytes of its output were dropped.
        """
        dropped_bytes = 0
        if kernel.output is not None:
            kernel.output.finish()
            dropped_bytes = kernel.output.dropped_bytes
            kernel.output = None
        if kernel.slot is not None and self._cgroups is not None:
            self._cgroups.release(kernel.slot)
            kernel.slot = None
        if kernel.tenant is not None:
            self._scratch.release(kernel.scratch, kernel.tenant)
            kernel.scratch, kernel.tenant = "", None
        return dropped_bytes

    def _open(self, kernel: OwnKernel, template: Template) -> None:
        """Open the kernel's pipe and cgroup, unless it was made ready before.

        Raises:
            OSError: there is no pipe or no cgroup for it.
        """
        if kernel.output is not None:
            return
        kernel.output = self._outputs.open(
            file_name(kernel.key),
            template.log_max_bytes,
            template.owner,
            stderr_apart=template.stderr_apart,
        )
        if self._cgroups is not None:
            kernel.slot = self._cgroups.acquire(template.limits)

    def _make_scratch(self, kernel: OwnKernel, template: Template) -> None:
        """
        Raises:
            OSError: it cannot be made.
        """
        program = template.program
        if program.workdir is not None and not (program.files or template.result_bytes):
            return
        account = template.account
        if account is None:
            place, tenant = f"{self._directory}/kernels", Tenant(template.owner, *self._own_ids)
        else:
            place, tenant = account.scratch, Tenant(template.owner, account.uid, account.gid)
        path = f"{place}/{file_name(kernel.key)}"
        self._scratch.create(path, tenant)
        kernel.scratch, kernel.tenant = path, tenant

    def _own_environment(self, kernel: OwnKernel, order: KernelOrder) -> dict[str, str]:
        """The variables that are this kernel's alone."""
        kernel_id, generation = kernel.key
        environment = {
            **order.env,
            process_tree.ID_VARIABLE: kernel_id,
            process_tree.GENERATION_VARIABLE: str(generation),
            process_tree.SUPERVISOR_VARIABLE: self._directory,
        }
        if kernel.scratch:
            environment["MUSTER_SCRATCH"] = kernel.scratch
            if order.template.result_bytes:
                environment["MUSTER_RESULT"] = f"{kernel.scratch}/{RESULT_FILE}"
        # Set here and not in the order, because an heir learns its devices only now. A kernel
        # without devices must not see those of others. Numbers are NVML's; CUDA counts otherwise by
        # default.
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, kernel.devices))
        if kernel.devices:
            environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        return environment


def note_spawned(kernel: OwnKernel, spawned: Spawned) -> None:
    kernel.pid, kernel.born_ticks = spawned.pid, spawned.born_ticks
    kernel.started_at = spawned.started_at


def raise_open_files() -> tuple[int, int] | None:
    """Allow this process more descriptors; returns the limit for its kernels, None if it is the
    same.

    Programs that use select() must not inherit more than the usual 1,024 by accident.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = before
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return before
