"""Credentials in addresses: kept out of messages and of files that every user can read."""

import json
import re
from urllib.parse import unquote, urlsplit

APT_AUTH = "/etc/apt/auth.conf.d"
# As far as the last @ before the path: a password may hold one.
IN_ADDRESS = re.compile(r"(?<=://)[^/\s?#\"'<>]+@")
SECRET_MODE = 0o600


def masked(words):
    """The text without what stands between :// and @ in its addresses."""
    return IN_ADDRESS.sub("***@", words)


def public(url):
    return IN_ADDRESS.sub("", url)


def login(url):
    """(user, password) of an address, None where it has none."""
    parts = urlsplit(url)
    return (unquote(parts.username or ""), unquote(parts.password or "")) if "@" in parts.netloc else None


def auth_line(url):
    """The line of apt_auth.conf for an address with credentials, "" for one without."""
    found = login(url)
    if found is None:
        return ""
    place = re.sub(r"^https://", "", public(url)).rstrip("/")
    return "machine {} login {} password {}\n".format(place, *found)


def held(value):
    """Whether anything in this value, as JSON, is an address with credentials."""
    return bool(IN_ADDRESS.search(json.dumps(value)))


def mode_for(value, mode=0o644):
    """The permissions of a file that holds this value: root's alone where there are credentials in it."""
    return SECRET_MODE if held(value) else mode
