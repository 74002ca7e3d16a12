"""Platforms: where jobs run. Each keeps `chaos.model.ports.Platform`."""
