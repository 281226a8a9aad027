"""Talk to image registries: references, credentials, bounded transport, manifests.

Every byte is verified by its digest, and no container engine is needed.
"""
