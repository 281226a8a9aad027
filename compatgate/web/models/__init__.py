"""The shapes of answers and of bodies, as types: the OpenAPI schemas are made from these."""
