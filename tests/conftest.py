"""Settings for every test."""

from hypothesis import HealthCheck, settings

# A loaded machine must not turn a slow example into a failure.
settings.register_profile("tela", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tela")
