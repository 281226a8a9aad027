"""Sign people in: authorization code with PKCE in the browser, ID tokens of the command line.

The browser keeps state, nonce and code verifier of a sign-in in a cookie of its own for ten
minutes; nothing is stored before the issuer has vouched for somebody. The command line gets its ID
token from the issuer by the device flow, and exchanges it here at once for a session: the gate
checks the token once, within minutes of its issue, and what the command line keeps is worth
something at this gate alone and can be ended.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

import httpx2
from authlib.integrations.httpx_client import OAuth2Client, OAuthError
from msgspec import Struct

from compatgate.errors import Forbidden, Unauthorized, Unavailable, quote_error
from compatgate.service.access.issuers import LEEWAY_S, TIMEOUT_S, Claims, Issuer, verify
from compatgate.service.access.sessions import IdentitySessions, NewSession
from compatgate.service.access.settings import (
    PeopleSettings,
    Person,
    access_of,
    claim,
    client_secret,
    person_of,
)

SIGN_IN_SECONDS = 600
_FRESH_S = 600
"""Age in seconds up to which an ID token opens a session."""


class Attempt(Struct, frozen=True):
    """A sign-in that the browser has begun, and the page to show afterwards; ``at``: Unix time."""

    state: str
    nonce: str
    verifier: str
    place: str
    at: float


class Response(Struct, frozen=True):
    """The query with which the issuer sends the browser back."""

    state: str = ""
    code: str = ""
    iss: str = ""
    error: str = ""
    error_description: str = ""


class People:
    """The issuer at which people sign in."""

    def __init__(
        self, settings: PeopleSettings, sessions: IdentitySessions, issuer: Issuer
    ) -> None:
        self.settings = settings
        self.issuer = issuer
        self._sessions = sessions
        self._secret = client_secret(settings)

    def begin(self, redirect_uri: str, place: str) -> tuple[Attempt, str]:
        """Begin a sign-in; return it and the issuer's page.

        The issuer sends the browser back to ``redirect_uri``; ``place`` is shown afterwards.
        """
        url = self.issuer.endpoint("authorization_endpoint")
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        attempt = Attempt(state, nonce, verifier, place, time.time())
        with self._client(redirect_uri) as client:
            page, _ = client.create_authorization_url(
                url, state=attempt.state, nonce=attempt.nonce, code_verifier=attempt.verifier
            )
        return attempt, str(page)

    def finish(self, attempt: Attempt, response: Response, redirect_uri: str) -> NewSession:
        """Open a session with the issuer's response to this browser's attempt."""
        self._check(attempt, response)
        tokens = self._fetch(attempt, response, redirect_uri)
        id_token = tokens.get("id_token")
        if not isinstance(id_token, str):
            raise Unauthorized(
                f"{self.settings.label} sent no ID token", hint="request the scope openid"
            )
        access_token = str(tokens.get("access_token") or "")
        claims = self._verify(id_token, self.settings.client_id, access_token, attempt.nonce)
        person = self._person(claims, access_token)
        limit = access_of(person.groups, self.settings).targets
        if limit is not None:
            what = f"this account is limited to {', '.join(limit)}, and the pages show all targets"
            raise Forbidden(what, hint="use compatgate login")
        return self._sessions.open(person, "browser", id_token)

    def exchange(self, id_token: str, access_token: str | None) -> NewSession:
        """Open a session for the command line."""
        audience = self.settings.command_line
        if audience is None:
            raise Unauthorized("this gate does not support sign-in on the command line")
        claims = self._verify(id_token, audience, access_token or "")
        return self._sessions.open(self._person(claims, access_token), "command-line", id_token)

    def sign_out_url(self, back: str) -> str | None:
        """Return the issuer's page that ends the session there; None: it has none."""
        try:
            url = self.issuer.metadata().get("end_session_endpoint")
        except Unavailable:
            return None
        if not isinstance(url, str):
            return None
        asked = {"client_id": self.settings.client_id, "post_logout_redirect_uri": back}
        return str(httpx2.URL(url).copy_merge_params(asked))

    def _check(self, attempt: Attempt, response: Response) -> None:
        if not secrets.compare_digest(response.state.encode(), attempt.state.encode()):
            raise Unauthorized("this answer belongs to another sign-in", field="state")
        if time.time() - attempt.at > SIGN_IN_SECONDS:
            raise Unauthorized("the sign-in took too long")
        metadata = self.issuer.metadata()
        needs_issuer = metadata.get("authorization_response_iss_parameter_supported") is True
        if (response.iss or needs_issuer) and response.iss != self.settings.issuer:
            raise Unauthorized("the answer comes from another issuer", field="iss")
        if response.error or not response.code:
            said = response.error_description or response.error or "no code"
            raise Unauthorized(f"{self.settings.label} refused: {said[:200]}")

    def _fetch(self, attempt: Attempt, response: Response, redirect_uri: str) -> dict[str, Any]:
        url = self.issuer.endpoint("token_endpoint")
        with self._client(redirect_uri) as client:
            try:
                found = client.fetch_token(
                    url,
                    grant_type="authorization_code",
                    code=response.code,
                    redirect_uri=redirect_uri,
                    code_verifier=attempt.verifier,
                )
            except OAuthError as error:
                said = (error.description or error.error or "")[:200]
                raise Unauthorized(f"{self.settings.label} refused the code: {said}") from None
            except (httpx2.HTTPError, ValueError) as error:
                what = f"{self.settings.label} does not answer: {quote_error(error)}"
                raise Unavailable(what, field=url, hint="try again soon") from None
        return dict(found)

    def _client(self, redirect_uri: str) -> OAuth2Client:
        method = "none"
        if self._secret:  # is told as the issuer wants it, by default as Basic
            known = self.issuer.metadata().get("token_endpoint_auth_methods_supported")
            basic = not isinstance(known, list) or "client_secret_basic" in known
            method = "client_secret_basic" if basic else "client_secret_post"
        return OAuth2Client(
            self.settings.client_id,
            self._secret or None,
            token_endpoint_auth_method=method,
            scope=" ".join(self.settings.scopes),
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            timeout=TIMEOUT_S,
        )

    def _verify(
        self, id_token: str, client_id: str, access_token: str, nonce: str | None = None
    ) -> Claims:
        claims = verify(
            id_token,
            self.issuer,
            audience=client_id,
            client_id=client_id,
            nonce=nonce,
            access_token=access_token or None,
        )
        if int(time.time()) - claims["iat"] > _FRESH_S + LEEWAY_S:
            raise Unauthorized("the ID token is too old", field="iat", hint="sign in again")
        return claims

    def _person(self, claims: Claims, access_token: str | None) -> Person:
        names = self.settings.claims
        lacks = any(claim(claims, name) is None for name in (names.name, names.email, names.groups))
        if self.settings.userinfo and access_token and lacks:
            url = self.issuer.endpoint("userinfo_endpoint")
            told = self.issuer.get_json(url, Authorization=f"Bearer {access_token}")
            if told.get("sub") != claims["sub"]:
                raise Unauthorized("the issuer returned another user", field="sub")
            claims = {**told, **claims}
        return person_of(claims, self.settings)
