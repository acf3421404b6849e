"""Notices: telling channels that work has ended, through services outside of the cluster."""
