"""Sign in on the command line: the device authorization grant (RFC 8628).

The command line talks to the issuer that the gate names, shows an address and a code, and asks for
the tokens until the person has signed in there with any browser.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx
import msgspec
from msgspec import Struct

from compatgate.errors import BadInput, Unauthorized, Unavailable, quote_error
from compatgate.service.access.schemas import SignInBody
from compatgate.service.access.settings import url_problem

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_TIMEOUT_S = 15.0
_INTERVAL_S, _SLOWER_S, _LONGEST_INTERVAL_S = 5.0, 5.0, 60.0
_MAX_BYTES = 1024 * 1024
_REFUSALS = {
    "access_denied": "the sign-in was refused",
    "expired_token": "the sign-in was not completed in time",
}
T = TypeVar("T", bound=Struct)


class DeviceCode(Struct, frozen=True):
    """The code of the issuer, and how many seconds to wait between questions, and in all."""

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float
    verification_uri_complete: str = ""
    interval: float = _INTERVAL_S


class DeviceTokens(Struct, frozen=True):
    """The tokens of the person."""

    id_token: str
    access_token: str = ""


def sign_in(
    described: SignInBody,
    show: Callable[[DeviceCode], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> DeviceTokens:
    """Return the tokens of a person who signs in at the issuer."""
    for name in ("device_authorization_endpoint", "token_endpoint"):
        if problem := url_problem(getattr(described, name)):
            raise BadInput(f"the gate's {name} {problem}", field="--server")
    with httpx.Client(timeout=_TIMEOUT_S, follow_redirects=False) as http:
        asked = {"client_id": described.client_id, "scope": " ".join(described.scopes)}
        answer = _post(http, described.device_authorization_endpoint, asked)
        code = _read(answer, DeviceCode, described.issuer)
        if not code.verification_uri.startswith(("https://", "http://")):
            raise Unavailable("the issuer has no sign-in page", field=described.issuer)
        show(code)
        return _wait(http, described, code, sleep)


def _wait(
    http: httpx.Client, described: SignInBody, code: DeviceCode, sleep: Callable[[float], None]
) -> DeviceTokens:
    asked = {
        "grant_type": _GRANT,
        "device_code": code.device_code,
        "client_id": described.client_id,
    }
    interval = min(max(code.interval, 1.0), _LONGEST_INTERVAL_S)
    end = time.monotonic() + code.expires_in
    while time.monotonic() < end:
        sleep(interval)
        try:
            answer = _post(http, described.token_endpoint, asked)
        except Unavailable:  # RFC 8628, 3.5: ask less often
            interval = min(interval * 2, _LONGEST_INTERVAL_S)
            continue
        error = answer.get("error")
        if error is None:
            return _read(answer, DeviceTokens, described.issuer)
        if error == "slow_down":
            interval = min(interval + _SLOWER_S, _LONGEST_INTERVAL_S)
        elif error != "authorization_pending":
            raise Unauthorized(_refusal(answer), hint="run compatgate login again")
    raise Unauthorized("the sign-in was not completed in time", hint="run compatgate login again")


def _refusal(answer: Mapping[str, Any]) -> str:
    error = str(answer.get("error"))
    said = str(answer.get("error_description") or error)[:200]
    return _REFUSALS.get(error, f"the issuer refused: {said}")


def _post(http: httpx.Client, url: str, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON object that the issuer answers, an error of OAuth included."""
    try:
        response = http.post(url, data=dict(form), headers={"Accept": "application/json"})
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        what = f"the issuer does not answer: {quote_error(error)}"
        raise Unavailable(what, field=url) from None
    try:
        if len(response.content) > _MAX_BYTES or response.status_code >= 500:
            raise ValueError
        return msgspec.json.decode(response.content, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        what = f"the issuer answers with status {response.status_code} and no JSON"
        raise Unavailable(what, field=url) from None


def _read(answer: Mapping[str, Any], kind: type[T], issuer: str) -> T:
    if "error" in answer:
        raise Unauthorized(_refusal(answer))
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        what = f"the issuer's answer cannot be used: {quote_error(error)}"
        raise Unavailable(what, field=issuer) from None
