"""mgformer serve: a trained recommender as an HTTP service with a web page."""

import errno
import functools
import json
import os
from pathlib import Path
from typing import Any

from typer import Argument, Option

from mgformer.cli.console import err, working
from mgformer.cli.options import Signed, key_in
from mgformer.errors import ConfigError
from mgformer.files import make_folder

RUNS = """\
Folder of a trained recommender; or several with names: a=RUN1 b=RUN2. The first is the default."""
RULES = "Follow the rules of a TOML file instead of those of the recommender."
FEEDBACK = "Take interactions at POST /feedback, and append them to a log in this folder."
INDEX = """\
How to search for items: exact scores all; ann searches an index and scores what it finds (extra
`ann`); auto takes ann for large catalogs."""
SHARE = """\
Share of the users who get a model if a request names none: --share a=0.9 --share b=0.1. Can be
repeated. By default, all get the first."""


def command(
    runs: list[str] = Argument(metavar="RUN | NAME=RUN…", help=RUNS, show_default=False),
    share: list[str] = Option([], metavar="NAME=SHARE", help=SHARE, show_default=False),
    host: str = Option("127.0.0.1", help="Address to listen on; 0.0.0.0 for all interfaces."),
    port: int = Option(8000, min=0, max=65_535, help="Port to listen on."),
    workers: int = Option(1, min=1, help="Number of processes."),
    allow_host: list[str] = Option(
        [],
        metavar="NAME",
        help="Another name of this service, as clients write it; * allows all. Can be repeated.",
        show_default="loopback and --host",
    ),
    no_users: bool = Option(False, "--no-users", help="Do not list, search or compare users."),
    feedback: Path | None = Option(None, metavar="FOLDER", help=FEEDBACK),
    rules: Path | None = Option(None, metavar="FILE", help=RULES),
    index: str = Option("auto", metavar="exact|ann|auto", help=INDEX),
    exact_up_to: int = Option(
        1_000_000, min=0, help="Number of items up to which --index auto is exact."
    ),
    max_k: int = Option(1_000, min=1, help="Largest k of a request."),
    max_body: int = Option(1_000_000, min=1, help="Largest body of a request, in bytes."),
    max_header: int = Option(32_768, min=256, help="Largest headers of a request, in bytes."),
    max_connections: int = Option(500, min=1, help="Open connections of each process."),
    header_timeout: float = Option(10.0, min=0.1, help="Seconds for the headers to arrive."),
    body_timeout: float = Option(30.0, min=0.1, help="Seconds for the body to arrive."),
    keep_alive: int = Option(5, min=1, help="Seconds to keep a connection without requests."),
    drain: int = Option(10, min=0, help="Seconds for running requests when it stops."),
    signed: Signed = None,
) -> None:
    """Serve recommendations over HTTP, with a web page to try them.

    Set MGFORMER_API_KEY to require this key in the header X-API-Key. Health checks, /docs and the
    files of the page need no key. If a new model is trained into the same folder, the service loads
    it without a pause. A request chooses one of several models with ?model=NAME.
    """
    try:
        import uvicorn

        from mgformer.runs.bundle_files import load_bundle
        from mgformer.runs.rules import Ruled, read_rules
        from mgformer.serving import worker
        from mgformer.serving.connections import LimitedConnection
        from mgformer.serving.limits import ConnectionLimits
        from mgformer.serving.models import check_shares
        from mgformer.serving.monitoring import LOGGING
        from mgformer.serving.search import Search
        from mgformer.serving.security import allowed_hosts
    except ImportError:
        raise ConfigError("serving needs an extra: pip install 'mgformer[serve]'") from None
    if feedback is not None:
        check_writable(feedback)
    folders, shares = named_runs(runs), named_shares(share)
    check_shares(folders, shares)
    search = Search(index, exact_up_to)
    search.check()
    with working():
        # A broken bundle is reported once, before any worker starts.
        for folder in folders.values():
            bundle = load_bundle(folder, key_in(signed))
            search.wants(bundle)
            if rules is not None:
                Ruled(read_rules(rules), bundle.filters, bundle.items, str(rules))
    # Workers are separate processes. They read from the environment what to serve.
    os.environ[worker.RUNS] = json.dumps({name: str(run) for name, run in folders.items()})
    os.environ[worker.SIGNED] = "" if signed is None else str(signed.absolute())
    options = {
        "shares": shares,
        "limits": {"k": max_k, "body_bytes": max_body},
        "hosts": allowed_hosts(host, allow_host),
        "list_users": not no_users,
        "feedback": None if feedback is None else str(feedback.absolute()),
        "search": {"kind": index, "exact_up_to": exact_up_to},
        "rules": None if rules is None else str(rules.absolute()),
    }
    os.environ[worker.OPTIONS] = json.dumps(options)
    connections = ConnectionLimits(
        connections=max_connections,
        head_bytes=max_header,
        head_seconds=header_timeout,
        body_seconds=body_timeout,
    )
    protocol: Any = functools.partial(LimitedConnection, limits=connections)
    err.print(
        f"serving {', '.join(runs)} at http://{host}:{port}  (press Ctrl-C to stop)", style="dim"
    )
    uvicorn.run(
        "mgformer.serving.worker:app",
        host=host,
        port=port,
        workers=workers,
        factory=True,
        http=protocol,
        ws="none",
        log_config=LOGGING,
        access_log=False,
        server_header=False,
        # A client can write these headers itself, and nothing here needs them.
        proxy_headers=False,
        timeout_keep_alive=keep_alive,
        timeout_graceful_shutdown=drain,
        # A worker does not answer health checks while it imports torch and loads the bundle. On a
        # slow machine that takes a minute, and a shorter timeout would kill it in a loop.
        timeout_worker_healthcheck=120,
    )


def check_writable(folder: Path) -> None:
    """Make the folder of the feedback log, so that a wrong one is reported before it is needed."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--feedback {folder}: is a file; name a folder")
    make_folder(folder)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def named_runs(runs: list[str]) -> dict[str, Path]:
    """Return the names and the folders of the models. A single one needs no name."""
    from mgformer.serving.models import DEFAULT

    named: dict[str, Path] = {}
    for run in runs:
        name, is_named, folder = run.partition("=")
        # A folder whose name contains "=" exists as it is written.
        if not is_named or Path(run).exists():
            if len(runs) > 1:
                raise ConfigError(f"{run}: several models need names; write a={run} b=…")
            name, folder = DEFAULT, run
        if name in named:
            raise ConfigError(f"{run}: the name {name!r} is used twice; give each model its own")
        named[name] = Path(folder)
    return named


def named_shares(shares: list[str]) -> dict[str, float]:
    """Return the share of each model that is named."""
    named = {}
    for share in shares:
        name, _, value = share.partition("=")
        try:
            named[name] = float(value)
        except ValueError:
            raise ConfigError(f"--share {share}: expected NAME=SHARE, such as a=0.9") from None
    return named
