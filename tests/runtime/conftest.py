"""How properties are tested: by what is true, not by how long it takes."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("tony", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tony")
