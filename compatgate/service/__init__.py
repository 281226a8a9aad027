"""Serve the gate: eight rooms, and `recovery` over them; `compatgate.service.app` builds each.

A room offers what its `service` lists, and other rooms import nothing else from it. A capability
in a room holds its tables (`models` or the head of `repository`), queries (`repository`), what it
does (`service`), the bodies of REST (`schemas`, which the client imports) and routes (`api`).
"""
