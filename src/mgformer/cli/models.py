"""mgformer models: what can be trained, and with which options."""

import textwrap
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from typer import Argument

from mgformer.cli.console import out, print_json, print_table
from mgformer.cli.options import AsJson
from mgformer.models import import_model, model_summaries

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from mgformer.models.base import Model

SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def command(
    name: str | None = Argument(None, help="A model, or package.module:Class.", show_default="all"),
    as_json: AsJson = False,
) -> None:
    """List the models, or the options of one model."""
    summaries = model_summaries()
    if name is None:
        if as_json:
            print_json({"models": [{"model": n, "summary": s} for n, s in summaries.items()]})
            return
        print_table(["model", ""], list(summaries.items()), num_text=2)
        out.print("options of one: mgformer models NAME", style="dim")
        return
    model = import_model(name)
    about = {
        "model": name,
        "summary": summaries.get(name) or (model.__doc__ or "").strip().partition("\n")[0],
        "options": [_option(model, n, f) for n, f in model.Config.model_fields.items()],
    }
    if as_json:
        print_json(about)
    else:
        _show(about)


def _option(model: "type[Model]", name: str, field: "FieldInfo") -> dict[str, Any]:
    """Describe one option as plain JSON. Types have bounds, such as `int > 0`."""
    from pydantic_core import to_jsonable_python

    bounds = [
        f" {sign} {getattr(rule, bound):g}"
        for rule in field.metadata
        for bound, sign in SIGNS.items()
        if getattr(rule, bound, None) is not None
    ]
    return {
        "option": name,
        "type": "".join([_type(field.annotation), *bounds]),
        "default": "required" if field.is_required() else to_jsonable_python(field.get_default()),
        "meaning": " ".join((field.description or "").split()),
        "tuned": name in model.space,
    }


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(map(str, get_args(annotation)))
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__.replace("NoneType", "none")
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    if get_origin(annotation) is tuple:
        return f"list of {_type(get_args(annotation)[0])}"
    return " | ".join(map(_type, get_args(annotation))) or str(annotation)


def _show(about: dict[str, Any]) -> None:
    out.print(f"{about['model']}: {about['summary']}")
    if not about["options"]:
        out.print("it has no options", style="dim")
        return
    for option in about["options"]:
        tuned = ", tuned" if option["tuned"] else ""
        default = "none" if option["default"] is None else option["default"]
        out.print()
        out.print(f"model.{option['option']}", style="bold", end="")
        out.print(f"  {option['type']}, default {default}{tuned}", style="dim")
        lines = textwrap.wrap(option["meaning"], min(out.width, 100) - 2)
        out.print(textwrap.indent("\n".join(lines), "  "))
    example = f"mgformer train --model {about['model']} --set model.OPTION=VALUE"
    out.print(f"\nset one: {example}", style="dim")
