"""The command line. Only this package prints, and only this package ends the program.

A command lives in the module of its name. The module is imported when the command runs, and it
imports torch, polars and scipy inside its functions: help answers at once.

Exit codes: 0 done; 2 the user's input is wrong; 3 the system failed (disk, permissions, memory);
1 a bug of ours. With 2 and 3, one line says what is wrong.
"""

import os
import sys

COMMANDS = {
    "init": "Write a commented config to start from, for a file of yours.",
    "train": "Train a model on interactions, evaluate it, and save it.",
    "evaluate": "Measure a trained recommender on its held-out pairs.",
    "refit": "Train a tested recommender again on all its pairs, for production.",
    "refresh": "Add new interactions to a trained recommender, without training.",
    "add-items": "Add new items by their attributes, without training.",
    "add-users": "Add new users by their attributes, without training.",
    "rules": "Show, set or remove the rules of a recommender.",
    "promote": "Replace a recommender by a new one, if the new one is not worse.",
    "forget": "Remove users from a trained recommender, with all their data.",
    "recommend": "Recommend items that a user does not have yet.",
    "search": "Find the id of an item by a part of its name.",
    "similar": "Show the items most similar to an item, or similar users.",
    "serve": "Serve recommendations over HTTP, with a web page to try them.",
    "export": "Write a recommender as files for other programs.",
    "report": "Write a run, or several runs side by side, as one HTML file.",
    "compare": "Train several models on one split and compare them on test.",
    "backtest": "Test models at several moments in time, each on what came next.",
    "tune": "Search for the options of a model that do best on validation.",
    "reproduce": "Run a table or figure of the MGFormer paper again.",
    "models": "List the models, or the options of one model.",
    "datasets": "List, show and download datasets.",
}
"""Name of a command → the first line of its help."""
SYSTEM_FAILED = 3
"""The exit code if disk, permissions or memory are at fault."""


def main() -> None:
    """Run a command, and turn an error into one line and an exit code."""
    name, *arguments = sys.argv[1:] or ["--help"]
    try:
        try:
            _dispatch(name, arguments)
        finally:
            sys.stdout.flush()  # here, so that a full disk is reported
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does: nothing is wrong.
        sys.stderr.close()
    except (OSError, MemoryError, RuntimeError) as error:
        from mgformer.cli.console import fail
        from mgformer.errors import system_failure

        line = system_failure(error)
        if line is None:
            raise
        _drop_output()
        fail(line, SYSTEM_FAILED)


def _dispatch(name: str, arguments: list[str]) -> None:
    if name in ("--help", "-h"):
        sys.stdout.write(_help())
    elif name == "--version":
        from mgformer.version import __version__

        sys.stdout.write(f"mgformer {__version__}\n")
    else:
        _run(name, arguments)


def _drop_output() -> None:
    """Forget output that cannot be written: Python would fail once more when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {line}" for name, line in COMMANDS.items())
    return f"""\
Usage: mgformer COMMAND [ARGUMENTS]...

Train, compare and use recommenders learned from who interacted with what.

Commands:
{commands}

Options:
  -h, --help  Show this help. For the options of a command: mgformer COMMAND -h
  --version   Show the version.

Start with: mgformer train demo
"""


def module_of(name: str) -> str:
    """Return the module of a command."""
    return f"mgformer.cli.{name.replace('-', '_')}"


def _run(name: str, arguments: list[str]) -> None:
    from importlib import import_module

    import typer

    from mgformer.cli.console import fail
    from mgformer.errors import MgformerError, did_you_mean
    from mgformer.training.memory import use_large_pages

    if name not in COMMANDS:
        fail(f"unknown command {name!r}{did_you_mean(name, COMMANDS)}; see: mgformer --help")
    use_large_pages()
    module = import_module(module_of(name))
    app = typer.Typer(
        help=COMMANDS[name],
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain text: formatting it would double the time that help takes
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    functions = getattr(module, "SUBCOMMANDS", None) or {name: module.command}
    for own_name, function in functions.items():
        app.command(own_name)(function)
    try:
        app(arguments, prog_name=f"mgformer {name}")
    except MgformerError as error:
        fail(str(error))
