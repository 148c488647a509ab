"""Passwords in addresses: what is shown or saved has none."""

import re

HIDDEN = "***"  # stands where a password was

_ADDRESS = re.compile(r"[\w+.-]*://\S+")
_WEB = re.compile(r"https?://", re.IGNORECASE)
# A password ends at the last @: it may have slashes, as SQLAlchemy reads it. In a web address what
# has only digits before a slash is a port.
_PASSWORD = re.compile(r"(?<=://)([^/:@]*):.*@", re.DOTALL)
_WEB_LOGIN = re.compile(r"(?<=://)(?:[^/?#]*|[^/:@\[]*:(?!\d*(?:[/?#]|$)).*)@", re.DOTALL)
_SETTING = re.compile(
    r"([?&;][^=&;]*(?:pass|pwd|secret|token|key|sig|credential)[^=&;]*=)[^&;]+", re.IGNORECASE
)


def hide_password(text: str) -> str:
    """A text whose addresses have no passwords, as :func:`hide_in_address` leaves them.

    >>> hide_password("at http://me:secret@host:5000/path")
    'at http://host:5000/path'
    >>> hide_password("postgresql://me:secret@host/runs?sslmode=require&sslpassword=other")
    'postgresql://me:***@host/runs?sslmode=require&sslpassword=***'
    """
    return _ADDRESS.sub(lambda match: hide_in_address(match[0]), text)


def hide_in_address(address: str) -> str:
    """An address without its password.

    The login of a web address is left out, because a user alone may be a token; elsewhere ``***``
    stands for the password, and for settings behind a ``?`` that are named like one.
    """
    if _WEB.match(address):
        address, _, _ = split_web_login(address)
    else:
        address = _PASSWORD.sub(rf"\1:{HIDDEN}@", address)
    return _SETTING.sub(rf"\1{HIDDEN}", address)


def split_web_login(address: str) -> tuple[str, str, str]:
    """A web address without its login, and the login's user and password as they are written; both
    are empty where there is none, and in every other address."""
    login = _WEB_LOGIN.search(address) if _WEB.match(address) else None
    if login is None:
        return address, "", ""
    user, _, password = login[0].removesuffix("@").partition(":")
    return address[: login.start()] + address[login.end() :], user, password
