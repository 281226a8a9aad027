"""Sign people in at an OpenID Connect issuer, and trust the job tokens of CI systems."""
