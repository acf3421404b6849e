"""Notices of deployments: an update is done or was given up, no replica is tried any more, or none
serves."""

from muster.control.deployment.entity import Deployment
from muster.control.engine.work import Work
from muster.control.notice.ends import Writer
from muster.control.notice.entity import Message, Tone
from muster.control.notice.message import MAX_BODY
from muster.core.reasons import Reason
from muster.core.text import duration, made_text, printable


class DeploymentTeller:
    """Makes the notices for the channels that a deployment's spec names, in the commit of what they
    tell."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def updated(self, work: Work, deployment: Deployment) -> None:
        """Tell that the wished revision has taken the place of the former."""
        title = f"deployment {deployment.name}: revision {deployment.stable} serves"
        self._tell(work, deployment, _message(deployment, title, None, Tone.SUCCESS))

    def given_up(self, work: Work, deployment: Deployment, revision: int, why: Reason) -> None:
        """Tell that an update has failed, and what serves on."""
        title = (
            f"deployment {deployment.name}: revision {revision} was given up, "
            f"{deployment.stable} serves on"
        )
        self._tell(work, deployment, _message(deployment, title, why, Tone.FAILURE))

    def never_healthy(self, work: Work, deployment: Deployment, why: Reason) -> None:
        """Tell that no replica of a new deployment became healthy, and no more are tried."""
        title = f"deployment {deployment.name}: no replica became healthy"
        self._tell(work, deployment, _message(deployment, title, why, Tone.FAILURE))

    def serves_nobody(
        self, work: Work, deployment: Deployment, for_s: float, why: Reason | None
    ) -> None:
        """Tell that a deployment which served has had no replica that serves for a while."""
        title = f"deployment {deployment.name}: no replica serves, for {duration(for_s)}"
        self._tell(work, deployment, _message(deployment, title, why, Tone.FAILURE))

    def serves_again(self, work: Work, deployment: Deployment, after_s: float) -> None:
        """Tell that an outage is over of which channels were told."""
        title = f"deployment {deployment.name}: serves again, after {duration(after_s)}"
        self._tell(work, deployment, _message(deployment, title, None, Tone.SUCCESS))

    def _tell(self, work: Work, deployment: Deployment, message: Message) -> None:
        for channel in deployment.spec.notify:
            if channel.wants(success=message.tone is Tone.SUCCESS):
                self._writer.write(work, channel, message, deployment.owner, deployment.id)


def _message(deployment: Deployment, title: str, why: Reason | None, tone: Tone) -> Message:
    lines = [
        f"deployment {deployment.name} ({deployment.id}) of {deployment.owner}",
        "" if why is None else f"reason: {why.sentence()}",
        "" if why is None or not why.remedy() else f"what to do: {why.remedy()}",
        f"more: muster why {deployment.name}",
    ]
    body = "\n".join(line for line in lines if line)
    return Message(title, printable(made_text(body, MAX_BODY)), tone)
