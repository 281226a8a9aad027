"""Observe what a machine has below its containers: modules, services, settings, its platform."""
