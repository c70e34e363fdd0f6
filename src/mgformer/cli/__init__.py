"""The command line. Only here is anything printed, and only here does the program exit.

Exit codes: 0 done, 2 the user's input is wrong (one line says what), 1 a fault of ours.
"""

import sys

import typer

from mgformer.cli import (
    compare,
    datasets,
    evaluate,
    export,
    recommend,
    refit,
    report,
    reproduce,
    serve,
    similar,
    train,
    tune,
)
from mgformer.cli.console import fail
from mgformer.errors import MgformerError
from mgformer.training.memory import use_large_pages
from mgformer.version import __version__

app = typer.Typer(
    name="mgformer",
    help="Train, compare and use recommenders learned from who interacted with what.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.command)
app.command("evaluate")(evaluate.command)
app.command("refit")(refit.command)
app.command("compare")(compare.command)
app.command("tune")(tune.command)
app.command("reproduce")(reproduce.command)
app.command("recommend")(recommend.command)
app.command("similar")(similar.command)
app.command("export")(export.command)
app.command("serve")(serve.command)
app.command("report")(report.command)
app.add_typer(datasets.app, name="datasets")


@app.callback(invoke_without_command=True)
def _root(
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    if version:
        typer.echo(f"mgformer {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line and turn what goes wrong into a line and an exit code."""
    use_large_pages()
    try:
        app()
    except MgformerError as error:
        fail(str(error))
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does: nothing is wrong.
        sys.stderr.close()
