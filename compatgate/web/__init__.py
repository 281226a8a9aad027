"""The gate over HTTP: REST under ``/api/v1``, described by OpenAPI, and health at the root.

A request's way: `app` (Flask) -> `view` (who asks, query, body size) -> a handler of ``api`` (one
module per resource) -> `compatgate.gate`. Each route is declared once, in its decorator; routing,
validation of the query and the OpenAPI description derive from that.
"""
