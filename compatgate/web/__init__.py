"""Serve the gate over HTTP: REST under ``/api/v1``, hooks, pages under ``/ui``, health at the root.

The path of a request: `asgi` (lanes of threads) -> `app` (Flask) -> a handler of a capability's
``api`` or of `pages` -> the capability's ``service``. Each route is declared once, in its
decorator; routing, validation of the query and the OpenAPI description derive from that.
"""
