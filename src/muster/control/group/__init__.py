"""Scaling groups and quotas, as operators set them: requests that store them. Their state for
placement is in ``control.session.cluster``."""
