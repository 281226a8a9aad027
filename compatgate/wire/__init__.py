"""Bodies and answers of REST as types: the service describes itself by them, the client reads them.

The OpenAPI schemas are made from these.
"""
