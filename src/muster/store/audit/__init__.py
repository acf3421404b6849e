"""Audits: stored rows compared with the rows from which they follow."""

from muster.store.audit import history, ledger, references, sessions, statuses

AUDITS = (
    *statuses.AUDITS,
    *references.AUDITS,
    *history.AUDITS,
    *sessions.AUDITS,
    *ledger.AUDITS,
)
"""The audits of what every store holds."""
