"""Serve clusters far from the central gate: decide from its bundle, deliver decisions to it."""
