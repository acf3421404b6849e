"""Verbs of deployments."""

from typing import TYPE_CHECKING

from muster.core.verbs import Verb

if TYPE_CHECKING:
    from muster.core.views.deployments import DeploymentView

PAUSE_ROLLOUT: "Verb[DeploymentView]" = Verb(
    "pause_rollout",
    does="Have the update under way stand still.",
    help="Have the update under way stand still.",
    said=lambda deployment: f"the update of {deployment.name} is paused",
)
RESUME_ROLLOUT: "Verb[DeploymentView]" = Verb(
    "resume_rollout",
    does="Have a paused update go on.",
    help="Have a paused update go on.",
    said=lambda deployment: f"the update of {deployment.name} goes on",
)
