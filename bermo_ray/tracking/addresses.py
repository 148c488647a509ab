"""Logins in the addresses of stores, as in ``postgresql://me:secret@host/runs``.

A password is taken out of an address as soon as it is read. All that follows has the address
without it, so nothing can print or record it. Where the store is opened, :func:`full_address` puts
it back, and :func:`log_in` gives it to MLflow for a server.
"""

import base64
import os
import re
from urllib.parse import unquote

from bermo_ray.errors import UserError
from bermo_ray.passwords import HIDDEN, hide_in_address, split_web_login

USER_VARIABLE, PASSWORD_VARIABLE = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"
ADDRESS_VARIABLE = "MLFLOW_TRACKING_URI"

_WORD = re.compile(r"(?P<option>(?:[\w.-]+=)*)(?P<address>[\w+.-]+://.+)", re.DOTALL)
# By addresses without passwords; in this process alone.
_full_addresses: dict[str, str] = {}
_logins: dict[str, tuple[str, str]] = {}  # user and password for a server


def take_password(word: str) -> str:
    """An address without its password, which this process keeps. It may be a word of a command line
    that sets the address, as ``--tracking-uri=ADDRESS`` does; all other words stay as they are."""
    match = _WORD.fullmatch(word)
    if match is None:
        return word
    address, user, password = split_web_login(match["address"])
    if user or password:
        _logins[address.rstrip("/")] = unquote(user), unquote(password)
    hidden = hide_in_address(address)
    if hidden != address:
        _full_addresses[hidden] = address
    return match["option"] + hidden


def log_in(uri: str) -> None:
    """Lets MLflow send the login that a server's address came with: from now on it is this
    process's MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.

    It replaces those that were there, which may be another server's. MLflow itself would take the
    login in an address first, but its errors tell the address.
    """
    user, password = _logins.get(uri.rstrip("/"), ("", ""))
    if user:
        os.environ[USER_VARIABLE] = user
    if password:
        os.environ[PASSWORD_VARIABLE] = password


def full_address(address: str) -> str:
    """An address with the password that :func:`take_password` took, but for that of a server: to
    open a store with, not to show.

    Raises:
        UserError: the password was given to another process, as that of a study that is resumed.
    """
    if HIDDEN not in address:
        return address
    if address not in _full_addresses:
        take_password(os.environ.get(ADDRESS_VARIABLE, ""))
    if address not in _full_addresses:
        raise UserError(
            f"tracking_uri: the password of {address} is not kept; give the address with it, or "
            f"set {ADDRESS_VARIABLE}"
        )
    return _full_addresses[address]


def login_headers(uri: str) -> dict[str, str]:
    """What a request to an MLflow server has to carry, by the same settings as MLflow's own."""
    from mlflow.utils.credentials import get_default_host_creds

    login = get_default_host_creds(uri)
    if login.username and login.password:
        both = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
        return {"Authorization": f"Basic {both}"}
    return {"Authorization": f"Bearer {login.token}"} if login.token else {}
