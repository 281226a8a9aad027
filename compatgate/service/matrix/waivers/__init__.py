"""Manage waivers: named exceptions to rules, with an owner and an end."""
