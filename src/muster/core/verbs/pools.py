"""Verbs of pools and of their slices."""

from typing import TYPE_CHECKING

from muster.core.verbs import Verb

if TYPE_CHECKING:
    from muster.core.views.pools import PoolView, SliceView

PAUSE_POOL: "Verb[PoolView]" = Verb(
    "pause_pool",
    does="Have a pool make nothing more; its idle slices still go; for admins.",
    help="Have pools make nothing more; their idle slices still go.",
    said=lambda pool: f"pool {pool.name} is paused: it makes nothing more",
)
RESUME_POOL: "Verb[PoolView]" = Verb(
    "resume_pool",
    does="Have a pool make machines again that was paused, or stands still because many of its "
    "machines are silent at once; for admins.",
    help="Have pools make machines again. They were paused, or stand still.",
    said=lambda pool: f"pool {pool.name} makes machines again",
)
HOLD_SLICE: "Verb[SliceView]" = Verb(
    "hold_slice",
    does="Keep a slice from being deleted for being idle; for admins.",
    help="Keep slices from being deleted for being idle.",
    said=lambda slice_: f"slice {slice_.id} stays until `muster slices release`",
)
RELEASE_SLICE: "Verb[SliceView]" = Verb(
    "release_slice",
    does="Let a slice go that was held; for admins.",
    help="Let slices go that were held.",
    said=lambda slice_: f"slice {slice_.id} is held no more",
)
