"""The providers that are installed: those that come along, and ``muster.providers`` plug-ins."""

import difflib
import importlib
from importlib.metadata import entry_points

from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.pool import PoolSpec
from muster.providers.provider import Provider

BUILTIN = {
    "aws-ec2": "muster.providers.aws.ec2:AwsEc2",
    "kubernetes": "muster.providers.kubernetes.pods:KubernetesPods",
    "local": "muster.providers.local.processes:LocalProcesses",
    "script": "muster.providers.script.executable:Script",
    "ssh": "muster.providers.ssh.hosts:SshHosts",
}
"""Modules are imported once a pool asks for them: most clusters have no use for most of them."""
EXTRAS = {"aws-ec2": "aws", "kubernetes": "kubernetes", "ssh": "ssh"}
"""The extra of the distribution that brings a provider's library."""
_GROUP = "muster.providers"


def provider_names() -> list[str]:
    """The names that a pool may give as its ``provider``."""
    return sorted({*BUILTIN, *entry_points(group=_GROUP).names})


def provider_class(name: str) -> type[Provider]:
    """The provider of this name.

    Raises:
        InvalidSpec: there is none, or it cannot be loaded.
    """
    found: object
    try:
        if name in BUILTIN:
            module, _, attribute = BUILTIN[name].partition(":")
            found = getattr(importlib.import_module(module), attribute)
        else:
            installed = entry_points(group=_GROUP)
            if name not in installed.names:
                expected = f"expected one of {', '.join(provider_names())}{_nearest(name)}"
                raise _refused(name, expected)
            found = installed[name].load()
    except ModuleNotFoundError as error:
        if name in EXTRAS:
            expected = f"needs `pip install 'muster-scheduler[{EXTRAS[name]}]'` on the controller"
        else:
            expected = f"cannot be loaded: {error}"
        raise _refused(name, expected) from error
    except InvalidSpec:
        raise
    except Exception as error:  # a plug-in's module may raise anything
        raise _refused(name, f"cannot be loaded: {error}"[:300]) from error
    if not (isinstance(found, type) and issubclass(found, Provider)):
        raise _refused(name, "is no provider: expected a class derived from Provider")
    return found


def problems_of(spec: PoolSpec) -> list[Problem]:
    """Everything wrong with a pool's provider and settings, as far as can be told without asking
    anybody."""
    try:
        return list(provider_class(spec.provider).problems(spec))
    except InvalidSpec as error:
        return list(error.problems)


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, provider_names(), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _refused(name: str, expected: str) -> InvalidSpec:
    return InvalidSpec([Problem("provider", repr(name), expected)])
