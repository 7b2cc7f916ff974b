"""Describes `kernelcast.probe`: its public names, and how each may be called."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

from kernelcast import probe
from kernelcast.probe.document import PUBLIC_MEMBERS
from kernelcast.probe.settings import settings_from

_MODULES: Final = re.compile(r"(?:\w+\.)+(?=\w)|[~+](?=\w)")


def probe_names() -> dict[str, Any]:
    """Functions with their parameters, classes with their public members."""
    return {name: _described(name, getattr(probe, name)) for name in probe.__all__}


def _described(name: str, thing: Any) -> dict[str, Any]:
    if inspect.isfunction(thing):
        return _callable(thing)
    if not isinstance(thing, type):
        return {"type": _text(thing)}
    if name in PUBLIC_MEMBERS:  # programs get such an object from a function, and use no other member of it
        made = {f".{member}": described for member, described in _members(thing) if member in PUBLIC_MEMBERS[name]}
        return made | (_set_by_constructor() if thing is probe.Probe else {})
    return {"constructor": _callable(thing), **{f".{member}": described for member, described in _members(thing)}}


def _set_by_constructor() -> dict[str, Any]:
    """Public members of a probe that its class does not have: methods of its recorder, and its settings."""
    running = probe.Probe(settings_from("program", None, {}))
    names = [name for name in PUBLIC_MEMBERS["Probe"] if name in vars(running)]
    methods = {f".{name}": _callable(getattr(running, name)) for name in names if callable(getattr(running, name))}
    described = {one.name: _text(one.type) for one in fields(running.settings) if one.name != "policy"}
    running.abandon()
    return {**methods, ".settings": described}


def _members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    for name, member in inspect.getmembers_static(kind):
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            assert member.fget is not None
            yield name, {"property": _text(inspect.signature(member.fget).return_annotation)}
        elif inspect.isfunction(member) or isinstance(member, classmethod | staticmethod):
            yield name, _callable(getattr(kind, name))
        elif inspect.ismemberdescriptor(member):
            yield name, {"attribute": _text(inspect.get_annotations(kind).get(name, inspect.Parameter.empty))}


def _callable(thing: Any) -> dict[str, Any]:
    signature = inspect.signature(thing)
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    described: dict[str, Any] = {one.name: _parameter(number, one) for number, one in enumerate(parameters)}
    if not isinstance(thing, type):
        described["returns"] = _text(signature.return_annotation)
    return described


def _parameter(number: int, one: inspect.Parameter) -> str:
    place = "keyword" if one.kind is inspect.Parameter.KEYWORD_ONLY else f"position {number}"
    simple = isinstance(one.default, bool | int | float | str | tuple) or one.default is None
    default = "" if one.default is inspect.Parameter.empty else f" = {one.default!r}" if simple else " = ..."
    return f"{place}, {_text(one.annotation)}{default}"


def _text(annotation: Any) -> str:
    """An annotation without the modules in which its classes lie: those may move."""
    if annotation is inspect.Parameter.empty:
        return "Any"
    return _MODULES.sub("", annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))
