"""mgformer rules: the rules in a trained recommender."""

import json
from pathlib import Path

from typer import Argument, Option

from mgformer.cli.console import out, print_json, working
from mgformer.cli.options import AsJson, RunFolder, Sign, Signed, key_in
from mgformer.errors import ConfigError


def command(
    run: RunFolder,
    file: Path | None = Argument(None, help="New rules, as TOML.", show_default="show the rules"),
    clear: bool = Option(False, "--clear", help="Remove all rules."),
    sign: Sign = None,
    signed: Signed = None,
    as_json: AsJson = False,
) -> None:
    """Show, set or remove the rules of a recommender.

    Rules hide, pin and boost items, and limit how many items of a list share a value of an
    attribute. All lists of the recommender follow them. A running service uses new rules within
    seconds. New rules are checked against the items of the recommender first.
    """
    from dataclasses import replace

    from mgformer.locks import locked
    from mgformer.runs.bundle_files import check_folder, load_bundle, load_rules, save_bundle
    from mgformer.runs.rules import NO_RULES, Ruled, read_rules

    if clear and file is not None:
        raise ConfigError(f"got {file} and --clear; give one of them")
    if file is None and not clear:
        rules = load_rules(run, key_in(signed))
    else:
        rules = NO_RULES if file is None else read_rules(file)
        check_folder(run)
        signature = key_in(sign)
        with working(), locked(run):
            bundle = load_bundle(run, key_in(signed))
            Ruled(rules, bundle.filters, bundle.items, str(file))
            save_bundle(replace(bundle, rules=rules), run, signature)
    if as_json:
        print_json({"run": str(run), "rules": rules.to_mapping()})
        return
    for kind, listed in rules.to_mapping().items():
        for number, rule in enumerate(listed, start=1):
            shown = ", ".join(f"{name} = {json.dumps(v)}" for name, v in rule.items())
            out.print(f"{kind} {number}: {shown}")
    if not rules.to_mapping():
        out.print(f"{run} has no rules")
    elif file is not None:
        out.print(f"saved in {run}")
