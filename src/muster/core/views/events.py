"""Changes of records, as they happen."""

from muster.core.views.base import View


class EventView(View):
    """A record changed: ``kind`` is the name of its entity, such as ``job``, ``status`` its new
    one. A task's ``id`` is the job's, a slash and its index. Admins hear of domains, projects,
    users and tokens too.

    Kind ``reset`` says that changes were missed, as at the start of a stream: read the state anew.
    """

    kind: str
    id: str = ""
    status: str = ""
