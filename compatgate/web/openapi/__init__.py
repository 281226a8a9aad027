"""The OpenAPI 3.1 description, made from the same declarations that routing is made from."""
