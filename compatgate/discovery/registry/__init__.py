"""Talk to image registries: references, credentials, bounded transport, manifests, artifacts.

Every byte is verified by its digest, and no container engine is needed.
"""
