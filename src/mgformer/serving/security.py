"""Who may ask: allowed hosts, origins, the API key, and the headers that protect the page.

A web page of a stranger can make a browser send requests to a service that only the browser's owner
can reach. Two checks stop this. The header Host must name this service, so a foreign name that
resolves to the address of the service (DNS rebinding) is refused. Requests that change the service
must not come from a page of another origin.
"""

import hmac
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Scope

ANY_HOST = "*"
HOST = re.compile(r"(\[[^]]*\]|[^][:]*?)\.?(?::\d*)?")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""Headers of a proxy: the client is not the one who has opened the connection."""

SECURITY_HEADERS = {
    # Nothing is loaded from other hosts, markup in the data cannot run, nobody can frame the page.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Sent with every answer, errors included."""

Refusal = tuple[int, str]
"""Status and message."""


@dataclass(frozen=True)
class Access:
    """Decides who may ask."""

    api_key: str | None = None
    """If given, every request except health checks, /docs and the files of the page needs it."""
    hosts: tuple[str, ...] = LOOPBACK
    """Names of this service in the header Host, without port; "*" allows all. The address that a
    connection has come to is always allowed."""

    def refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        """Return why a request is refused, if it is."""
        path = scope["path"]
        named = headers.getlist("host")
        if len(named) != 1:
            return 400, f"expected one header Host, got {len(named)}"
        if not self._is_allowed(named[0], scope):
            return 421, (
                f"the host {named[0][:100]!r} is not allowed; start the service with --allow-host"
            )
        # Health checks have no key, the page asks its user for it, and /docs says how to send it.
        is_open = path in ("/", "/docs", "/healthz", "/readyz") or path.startswith("/page/")
        if self.api_key is not None and not is_open:
            given = headers.get("x-api-key", "").encode("latin-1")
            if not hmac.compare_digest(given, self.api_key.encode()):
                return 401, "missing or wrong API key; send it in the header X-API-Key"
        if path in ("/admin", "/feedback") or path.startswith("/admin/"):
            return self._change_refusal(scope, headers, named[0])
        return None

    def _is_allowed(self, named: str, scope: Scope) -> bool:
        host = host_name(named)
        own = (scope.get("server") or ("",))[0]
        return ANY_HOST in self.hosts or host in self.hosts or (host != "" and host == own)

    def _change_refusal(self, scope: Scope, headers: Headers, host: str) -> Refusal | None:
        origin = headers.get("origin")
        # A browser sends the origin of the page with every POST. Other clients send none.
        if origin is not None and origin.lower().partition("://")[2] != host.lower():
            return 403, f"pages of another origin ({origin[:100]!r}) may not change the service"
        if self.api_key is None and not _is_local(scope, headers):
            return 403, "allowed from the machine of the service only; or set MGFORMER_API_KEY"
        return None


def host_name(host: str) -> str:
    """Return the name or address in a header Host: lower case, without port and brackets."""
    host = host.strip().lower()
    found = HOST.fullmatch(host)
    return found[1].strip("[]") if found else host  # an address of IPv6 may come without brackets


def allowed_hosts(bound: str, named: Iterable[str]) -> tuple[str, ...]:
    """Return the hosts to allow: loopback, the host that the service listens on, those named."""
    return tuple(dict.fromkeys([*LOOPBACK, *map(host_name, (bound, *named))]))


def _is_local(scope: Scope, headers: Headers) -> bool:
    """Return whether a client on this machine has sent a request, and not through a proxy."""
    if any(name in headers for name in FORWARDED):
        return False
    try:
        return ipaddress.ip_address((scope.get("client") or ("",))[0]).is_loopback
    except ValueError:
        return False
