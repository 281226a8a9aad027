"""Print the ID token of this job in GitHub Actions, for the audience in ``AUDIENCE``.

Source: https://docs.github.com/en/actions/reference/security/oidc#methods-for-requesting-the-oidc-token
"""

import json
import os
import sys
from urllib.parse import quote
from urllib.request import Request, urlopen


def main() -> int:
    """Print the token; return 1 if the job may not have one."""
    try:
        url = os.environ["ACTIONS_ID_TOKEN_REQUEST_URL"]
        bearer = f"Bearer {os.environ['ACTIONS_ID_TOKEN_REQUEST_TOKEN']}"
        whole = f"{url}&audience={quote(os.environ['AUDIENCE'], safe='')}"
        request = Request(whole, headers={"Authorization": bearer})  # noqa: S310 - GitHub's own
        with urlopen(request, timeout=30) as answer:  # noqa: S310
            print(json.load(answer)["value"])
    except (KeyError, OSError, ValueError) as error:
        print(f"no ID token: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
