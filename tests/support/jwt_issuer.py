"""An issuer of job tokens as GitHub and GitLab have them: discovery, keys, and tokens.

The claims are those that the vendors document; the gate reads discovery and keys over HTTP.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

GITHUB = {
    "jti": "example-id",
    "sub": "repo:acme/trainer:environment:prod",
    "environment": "prod",
    "ref": "refs/heads/main",
    "sha": "example-sha",
    "repository": "acme/trainer",
    "repository_owner": "acme",
    "actor_id": "12",
    "repository_visibility": "private",
    "repository_id": "74",
    "repository_owner_id": "65",
    "run_id": "example-run-id",
    "run_number": "10",
    "run_attempt": "2",
    "runner_environment": "github-hosted",
    "actor": "octocat",
    "workflow": "example-workflow",
    "head_ref": "",
    "base_ref": "",
    "event_name": "workflow_dispatch",
    "ref_type": "branch",
    "job_workflow_ref": "octo-org/octo-automation/.github/workflows/oidc.yml@refs/heads/main",
}
"""Claims of a job in GitHub Actions, without issuer, audience and times.

Source: https://docs.github.com/en/actions/reference/security/oidc#oidc-token-claims
"""
GITLAB = {
    "namespace_id": "72",
    "namespace_path": "acme",
    "project_id": "20",
    "project_path": "acme/trainer",
    "user_id": "1",
    "user_login": "sample-user",
    "user_email": "sample-user@example.com",
    "pipeline_id": "574",
    "pipeline_source": "push",
    "job_id": "302",
    "ref": "main",
    "ref_type": "branch",
    "ref_path": "refs/heads/main",
    "ref_protected": "true",
    "environment": "prod",
    "environment_protected": "false",
    "deployment_tier": "testing",
    "runner_id": 1,
    "runner_environment": "self-hosted",
    "sha": "714a629c0b401fdce83e847fc9589983fc6f46bc",
    "ci_config_ref_uri": "gitlab.example.com/acme/trainer//.gitlab-ci.yml@refs/heads/main",
    "sub": "project_path:acme/trainer:ref_type:branch:ref:main",
    "jti": "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b",
}
"""Claims of a job in GitLab CI, without issuer, audience and times.

Source: https://docs.gitlab.com/ci/secrets/id_token_authentication/#token-payload
"""


class JobIssuer:
    """An issuer on a free port; counts what is read."""

    def __init__(self) -> None:
        self.rsa = RSAKey.generate_key(2048, {"kid": "rsa-1", "use": "sig", "alg": "RS256"})
        self.ec = ECKey.generate_key("P-256", {"kid": "ec-1", "use": "sig"})
        self.keys: list[Any] = [self.rsa, self.ec]
        self.reads: dict[str, int] = {}
        self.away = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.reads[handler.path] = self.reads.get(handler.path, 0) + 1
        documents = {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/jwks",
            },
            "/jwks": {"keys": [key.as_dict(private=False) for key in self.keys]},
        }
        found = documents.get(handler.path)
        place, _, query = handler.path.partition("?")
        if place == "/token" and handler.headers["Authorization"] == "Bearer of the job":
            (audience,) = parse_qs(query)["audience"]
            found = {"value": self.token({**GITHUB, "aud": audience})}
        body = json.dumps(found).encode()
        handler.send_response(503 if self.away else 200 if found else 404)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def token(self, claims: dict[str, Any], key: Any = None, **header: Any) -> str:
        """Sign claims; those of issuer, audience and times are added where they are missing."""
        now = int(time.time())
        key = key or self.rsa
        usual = {"iss": self.url, "aud": "https://gate.example", "iat": now, "exp": now + 300}
        alg = header.pop("alg", "ES256" if isinstance(key, ECKey) else "RS256")
        header = {"alg": alg, "kid": key.kid, "typ": "JWT", **header}
        whole = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(header, whole, key, algorithms=[alg])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def serving_jobs() -> Iterator[JobIssuer]:
    """An issuer of job tokens."""
    issuer = JobIssuer()
    try:
        yield issuer
    finally:
        issuer.close()
