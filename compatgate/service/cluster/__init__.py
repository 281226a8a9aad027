"""Decide what a cluster may start: pods, rollouts, manifests."""
