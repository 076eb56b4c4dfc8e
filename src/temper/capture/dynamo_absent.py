"""Names that a lookup did not find: Dynamo guards what it read, and forgets what was missing.

A key that a later call finds in a dict, an attribute that comes to shadow a class or a
``__getattr__``, a global that hides a builtin: each changes what eager Python would do. Every
function here puts the guard beside the lookup. Tests: ``tests/frontdoor/test_absent.py``.
"""

from __future__ import annotations

import functools
from typing import Any

from torch._dynamo.exc import ObservedAttributeError
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import TypeDictSource
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.functions import UserFunctionVariable
from torch._dynamo.variables.misc import PythonModuleVariable
from torch._dynamo.variables.nn_module import UnspecializedNNModuleVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.user_defined import (
    UserDefinedClassVariable,
    UserDefinedObjectVariable,
)
from torch._guards import TracingContext
from torch.nn import Module

# What the trace under way took from builtins: the globals that did not have it, and its name.
BUILTINS = "_tt_builtins"


def guard_what_is_absent() -> None:
    """Make Dynamo guard the names that it looked for and did not find."""
    _keys()
    _attributes()
    _classes()
    _missing()
    _builtins()


def _keys() -> None:
    """``d[key]`` that raises, and ``d.pop(key, default)`` that does not find."""
    getitem = ConstDictVariable.getitem_const_raise_exception_if_absent
    call_method = ConstDictVariable.call_method
    install = ConstDictVariable.install_dict_contains_guard

    def guarded(self: ConstDictVariable, tx: Any, arg: Any) -> Any:
        if arg not in self:
            self.install_dict_contains_guard(tx, [arg])
        return getitem(self, tx, arg)

    def called(self: ConstDictVariable, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "pop" and args and args[0] not in self:
            self.install_dict_contains_guard(tx, [args[0]])
        return call_method(self, tx, name, args, kwargs)

    def contains(self: ConstDictVariable, tx: Any, args: Any) -> None:
        key = args[0]
        if key in self or key.source or key.is_python_constant():
            install(self, tx, args)
        elif not tx.output.side_effects.is_modified(self):
            self.install_dict_keys_match_guard()

    ConstDictVariable.install_dict_contains_guard = contains  # type: ignore[method-assign]
    ConstDictVariable.getitem_const_raise_exception_if_absent = guarded  # type: ignore[method-assign]
    ConstDictVariable.call_method = called  # type: ignore[method-assign]


def _attributes() -> None:
    """An attribute that neither object nor class has: ``__getattr__`` or an error answers."""
    generic_getattr = UserDefinedObjectVariable.generic_getattr

    def guarded(self: UserDefinedObjectVariable, tx: Any, name: str) -> Any:
        if self.source and name == "__dict__":
            install_guard(self.source.make_guard(_same_names))
        elif (
            self.source
            and not isinstance(self.value, Module)
            and name not in getattr(self.value, "__dict__", (name,))
            and not any(name in vars(base) for base in type(self.value).__mro__)
        ):
            absent = functools.partial(GuardBuilder.NOT_PRESENT_IN_GENERIC_DICT, attr=name)
            install_guard(self.source.make_guard(absent))
        return generic_getattr(self, tx, name)

    UserDefinedObjectVariable.generic_getattr = guarded  # type: ignore[method-assign]


def _same_names(self: GuardBuilder, guard: Any) -> None:
    """Of an object whose ``__dict__`` is read as a whole."""
    names = list(self.get(guard).__dict__)
    self.get_guard_manager(guard).add_lambda_guard(
        lambda given: list(given.__dict__) == names,
        [f"names of {self.arg_ref(guard)}"],
        guard.user_stack,
    )


def _classes() -> None:
    """An attribute of a base class: Dynamo guards the classes between, not the object's own."""
    walk = UserDefinedObjectVariable.get_source_by_walking_mro

    def walked(self: UserDefinedObjectVariable, tx: Any, name: str) -> Any:
        kind = type(self.value)
        seen = tx.output.guarded_mro_absent_keys
        if name not in kind.__dict__ and (id(kind), name) not in seen and self.cls_source:
            seen.add((id(kind), name))
            absent = functools.partial(GuardBuilder.DICT_NOT_CONTAINS, key=name)
            install_guard(TypeDictSource(self.cls_source).make_guard(absent))
        return walk(self, tx, name)

    UserDefinedObjectVariable.get_source_by_walking_mro = walked  # type: ignore[method-assign]


def _missing() -> None:
    """``hasattr``, ``getattr`` with a default, and an AttributeError that the model catches."""
    for kind in (PythonModuleVariable, UserFunctionVariable):
        kind.call_obj_hasattr = _asking(kind.call_obj_hasattr)  # type: ignore[method-assign]
    for reader in (
        PythonModuleVariable,
        UserFunctionVariable,
        UserDefinedObjectVariable,
        UserDefinedClassVariable,
        UnspecializedNNModuleVariable,
        TensorVariable,
    ):
        if "var_getattr" in vars(reader):
            reader.var_getattr = _reading(reader.var_getattr)  # type: ignore[method-assign]


def _guard_hasattr(self: Any, name: str) -> None:
    source = self.get_source() if hasattr(self, "get_source") else self.source
    if source and not getattr(self, "is_torch", False):
        install_guard(source.make_guard(functools.partial(GuardBuilder.HASATTR, attr=name)))


def _asking(hasattr_: Any) -> Any:
    def asked(self: Any, tx: Any, name: str) -> Any:
        _guard_hasattr(self, name)
        return hasattr_(self, tx, name)

    return asked


def _reading(getattr_: Any) -> Any:
    def read(self: Any, tx: Any, name: str) -> Any:
        try:
            return getattr_(self, tx, name)
        except ObservedAttributeError:
            _guard_hasattr(self, name)
            raise

    return read


def _builtins() -> None:
    """A name taken from builtins because the module has no global of that name."""
    load = InstructionTranslatorBase.load_builtin_from_argval

    def noted(self: InstructionTranslatorBase, argval: Any) -> Any:
        context = TracingContext.try_get()
        found = getattr(context, "__dict__", {}).get(BUILTINS)
        if found is not None and not str(self.f_globals.get("__name__")).startswith("torch."):
            found[id(self.f_globals), argval] = self.f_globals
        return load(self, argval)

    InstructionTranslatorBase.load_builtin_from_argval = noted  # type: ignore[method-assign]
