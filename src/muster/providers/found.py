"""The providers that are installed: those that come along, and ``muster.providers`` plug-ins."""

from muster.core.errors import InvalidSpec, Problem
from muster.core.plugins import Plugins
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
_PROVIDERS: Plugins[Provider] = Plugins("provider", "muster.providers", Provider, BUILTIN, EXTRAS)


def provider_class(name: str) -> type[Provider]:
    """The provider of this name.

    Raises:
        InvalidSpec: there is none, or it cannot be loaded.
    """
    return _PROVIDERS.named(name)


def problems_of(spec: PoolSpec) -> list[Problem]:
    """Everything wrong with a pool's provider and settings, as far as can be told without asking
    anybody."""
    try:
        return list(provider_class(spec.provider).problems(spec))
    except InvalidSpec as error:
        return list(error.problems)
