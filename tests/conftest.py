"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# How fast a machine draws examples says nothing of what is tested.
settings.register_profile("muster", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("muster")
