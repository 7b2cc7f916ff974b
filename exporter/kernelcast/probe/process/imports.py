"""Calls back when a module has been imported, without importing it and without a thread.

`ImportWatch` is a finder in front of all others. For a watched name it asks the others for the spec, and replaces the
spec's loader by one that reports the end of the import. For every other name it does one look-up.
Source: Python Language Reference, section 5.5 (the path based finder and meta path).
"""

from __future__ import annotations

import sys
from _thread import get_ident

from kernelcast.probe import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Listener = Callable[[ModuleType], None]


class ImportWatch:
    """Calls a listener when a module has been imported, on the importing thread; errors of listeners are ignored.

    Args:
        listeners: Listeners by the module's full name; each is called once.
    """

    def __init__(self, listeners: Mapping[str, Listener]) -> None:
        self._listeners = dict(listeners)
        # Names that a thread looks for at present, with the thread: a second watch of a name asks this one again.
        self._searched: set[tuple[str, int]] = set()

    def start(self) -> None:
        """Start watching; modules that are imported already are reported now."""
        for name in [name for name in self._listeners if name in sys.modules]:
            _call(self._listeners.pop(name), sys.modules[name])
        finders = sys.meta_path
        if not self._listeners or self in finders:
            return
        for place, finder in enumerate(finders):
            if not isinstance(finder, ImportWatch):  # of the program, which may find the module by itself
                break
            if finder.has_ended:
                finders[place] = self
                return
        finders.insert(0, self)

    @property
    def has_ended(self) -> bool:
        """Whether it watches nothing."""
        return not self._listeners

    def stop(self) -> None:
        """Watch no longer; the next watch takes this one's place, unless another finder is in front.

        It stays among the finders: another thread that goes through them would skip one after a removal, and the
        program may hold the list.
        """
        self._listeners.clear()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The other finders' spec with a loader that reports the import; None for modules that are not watched."""
        search = (fullname, get_ident())
        if fullname not in self._listeners or search in self._searched:
            return None
        self._searched.add(search)
        try:
            spec = self._found_by_others(fullname, path, target)
        finally:
            self._searched.discard(search)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            reporting: Any = _Reporting(spec.loader, self)
            try:
                spec.loader = reporting
            except Exception:  # noqa: BLE001  a spec of the program's own kind: it is imported unwatched
                return spec
        return spec

    def _found_by_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find else None
            if spec is not None:
                return spec
        return None

    def imported(self, module: ModuleType) -> None:
        """A watched module has run; nothing here fails its import."""
        try:
            listener = self._listeners.pop(module.__name__, None)
            if not self._listeners:
                self.stop()
        except Exception:  # noqa: BLE001  another thread may have stopped the watch at this moment
            return
        if listener is not None:
            _call(listener, module)


class _Reporting:
    """A module's own loader, which it gets back before it runs; `importlib.abc` takes long to import."""

    def __init__(self, loader: Any, watch: ImportWatch) -> None:
        self._loader = loader
        self._watch = watch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._watch.imported(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _call(listener: Listener, module: ModuleType) -> None:
    try:  # noqa: SIM105  contextlib would have to be imported
        listener(module)
    except Exception:  # noqa: BLE001, S110  an import of the program's must not fail because of a probe
        pass
