"""Run ``compatgate login``, ``logout`` and ``whoami``: a person's session at a gate."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import msgspec
from msgspec import Struct

from compatgate.errors import BadInput, CompatgateError, NotFound, Unauthorized, Unavailable
from compatgate.kit.cli.options import add_format
from compatgate.kit.cli.output import format_json_time, print_json
from compatgate.kit.cli.parser import add_server, server_of
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.clock import iso
from compatgate.service.gate_client import ask, make_client
from compatgate.service.identity.schemas import SignInBody
from compatgate.service.identity.settings import url_problem

if TYPE_CHECKING:
    import argparse


_LOGIN = """\
The gate names its issuer. This command shows an address and a code: open the address with any
browser, on any machine, and enter the code. The session is kept in a file that only you can read,
and commands use it for this gate when no token is given.

examples:
  compatgate login --server https://gate.example
  COMPATGATE_SERVER=https://gate.example compatgate login
"""
_LOGOUT = """\
The session ends at the gate, too. Your session at the issuer stays open.

examples:
  compatgate logout --server https://gate.example
"""
_WHOAMI = """\
examples:
  compatgate whoami --server https://gate.example
  compatgate whoami --server https://gate.example --token "$TOKEN" --format json
"""


def add_login_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``login``."""
    parser.epilog = _LOGIN
    _add_gate(parser)


def add_logout_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``logout``."""
    parser.epilog = _LOGOUT
    _add_gate(parser)


def add_whoami_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``whoami``."""
    parser.epilog = _WHOAMI
    add_server(parser)
    add_format(parser)


def _add_gate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server", metavar="URL", help="URL of the gate (default: $COMPATGATE_SERVER)"
    )


def _gate_url(args: argparse.Namespace) -> str:
    from compatgate.client.settings import base_of

    url = server_of(args)
    if not url:
        hint = "give --server URL, or set COMPATGATE_SERVER"
        raise BadInput("no gate URL is given", field="--server", hint=hint)
    return base_of(url)


def run_login(args: argparse.Namespace) -> int:
    """Sign a person in, and keep the session.

    Raises:
        BadInput: no gate is named, or the session cannot be kept.
        NotFound: the gate signs nobody in.
        Unauthorized: the person refused, or did not sign in in time.
        Forbidden: the person has no scope at the gate.
        Unavailable: the gate or the issuer does not answer.
    """
    url = _gate_url(args)
    with make_client(url, stored=False) as gate:
        from compatgate.client.credentials import Credential, store
        from compatgate.client.operations import Operations
        from compatgate.service.identity.cli import sign_in

        described = gate.send(Operations.describe_sign_in.request())
        tokens = sign_in(described, _show)
        access_token = tokens.access_token if described.access_token else None
        made = gate.send(Operations.open_session.request(tokens.id_token, access_token or None))
    name = made.session.email or made.session.name or made.session.subject
    kept = store(Credential(url, made.secret, made.session.id, name, made.session.expires_at))
    end = format_json_time(iso(made.session.expires_at))
    print(f"signed in to {url} as {strip_controls(name)} until {end}")
    print(f"the session is kept in {kept}", file=sys.stderr)
    return 0


def _show(code: DeviceCode) -> None:
    print(f"open    {strip_controls(code.verification_uri)}")
    print(f"enter   {strip_controls(code.user_code)}")
    if code.verification_uri_complete:
        print(f"or open {strip_controls(code.verification_uri_complete)}")
    print("waiting for the sign-in ...", flush=True)


def run_logout(args: argparse.Namespace) -> int:
    """End the session at the gate, and remove its file.

    Raises:
        BadInput: no gate is named.
        NotFound: nobody is signed in.
    """
    from compatgate.client.credentials import load, remove

    url = _gate_url(args)
    credential = load(url)
    if credential is None:
        remove(url)
        raise NotFound(f"not signed in to {url}", hint="run: compatgate login")
    try:
        with make_client(url, credential.secret) as gate:
            from compatgate.client.operations import Operations

            ask(gate, Operations.end_own_session)
    except CompatgateError as error:
        print(f"warning: the gate did not end the session: {error.detail}", file=sys.stderr)
    remove(url)
    print(f"signed out of {url}")
    return 0


def run_whoami(args: argparse.Namespace) -> int:
    """Show who the gate takes this user for.

    Raises:
        BadInput: no gate is named.
        Unauthorized: the token or the session is not valid.
        Unavailable: the gate does not answer.
    """
    with make_client(_gate_url(args), args.token) as gate:
        from compatgate.client.operations import Operations

        caller = ask(gate, Operations.show_caller)
    if args.format == "json":
        print_json(caller)
    else:
        scopes = ", ".join(caller["scopes"]) or "none"
        print(f"{caller['name']} ({caller['kind']}), scopes: {scopes}")
    return 0


_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_TIMEOUT_S = 15.0
_INTERVAL_S, _SLOWER_S, _LONGEST_INTERVAL_S = 5.0, 5.0, 60.0
_MAX_BYTES = 1024 * 1024
T = TypeVar("T", bound=Struct)


class DeviceCode(Struct, frozen=True):
    """What the issuer shows, and how to wait for the person.

    Attributes:
        interval: seconds between two questions.
        expires_in: seconds until the code ends.
    """

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
    """Return the tokens of a person who signs in at the issuer.

    Args:
        described: by the gate.
        show: shows the address and the code.
        sleep: waits a number of seconds.

    Raises:
        BadInput: the gate names an endpoint that is not HTTPS.
        Unauthorized: the person refused, or did not sign in in time.
        Unavailable: the issuer does not answer.
    """
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
    known = {
        "access_denied": "the sign-in was refused",
        "expired_token": "the sign-in was not completed in time",
    }
    error = str(answer.get("error"))
    said = str(answer.get("error_description") or error)[:200]
    return known.get(error, f"the issuer refused: {said}")


def _post(http: httpx.Client, url: str, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON object that the issuer answers, an error of OAuth included."""
    try:
        response = http.post(url, data=dict(form), headers={"Accept": "application/json"})
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        what = f"the issuer does not answer: {error or type(error).__name__}"
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
        what = f"the issuer's answer cannot be used: {error}".replace("`", "'")
        raise Unavailable(what, field=issuer) from None
