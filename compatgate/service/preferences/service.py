"""Find and keep the preferences of whoever asks for a page.

Somebody who signed in has them in the database: a person by the issuer's subject, a token by its
name. Everybody else has them in a cookie of the browser, and takes them along when signing in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.kit.ui.preferences import (
    PREFERENCES_COOKIE,
    Preferences,
    cookie_preferences,
    pack_cookie,
    use_preferences,
)

if TYPE_CHECKING:
    from compatgate.service.preferences.repository import PreferenceStore
    from compatgate.service.tokens.principal import Principal


def adopt_preferences(store: PreferenceStore, principal: Principal) -> None:
    """Let the pages of this request follow the preferences of a caller.

    Args:
        store: of the gate.
        principal: the caller.
    """
    if not principal.is_anonymous:
        use_preferences(lambda: store.find(principal.identity) or cookie_preferences())


def keep_preferences(
    store: PreferenceStore, principal: Principal, chosen: Preferences
) -> dict[str, str]:
    """Keep the preferences of a caller.

    Args:
        store: of the gate.
        principal: the caller.
        chosen: all of the caller's preferences.

    Returns:
        Cookies to set, by name.

    Raises:
        BadInput: they are too large.
    """
    if principal.is_anonymous:
        return {PREFERENCES_COOKIE: pack_cookie(chosen)}
    store.save(principal.identity, chosen)
    return {}
