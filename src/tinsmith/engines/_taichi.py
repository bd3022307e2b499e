"""Taichi 1.7.4: the only file that imports it.

It relies on private names (each has a probe below): a decorated kernel has `_primal` and `_adjoint`, each with
`func`, `arguments`, `ensure_compiled` and `compiled_kernels`; a program compiles a kernel to data that is launched
with a launch context filled by hand; `impl.pytaichi` is another object after every init and reset.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import MethodType, ModuleType
from typing import Any

from .._errors import KernelError, refusal
from .._lazy import lazy
from . import _common, _forks, _front_ends
from ._compiled_engine import CompiledEngine
from ._contract import CompileOptions, Facts
from ._registry import module_name


class Taichi(CompiledEngine):
    """The Taichi engine."""

    name = "taichi"

    @lazy
    def lang(self) -> ModuleType:  # pyright: ignore[reportIncompatibleMethodOverride]  # it is only read
        _common.require_home("taichi")
        import taichi

        return taichi

    def is_kernel(self, candidate: object) -> bool:
        if type(candidate).__name__ == "_BoundedDifferentiableMethod":
            return type(candidate).__module__ == "taichi.lang.kernel_impl"
        primal = getattr(candidate, "_primal", None)
        return getattr(candidate, "_is_wrapped_kernel", False) and type(primal).__module__ == "taichi.lang.kernel_impl"

    def owner_of(self, kernel: Any) -> object | None:
        return getattr(kernel, "_kernel_owner", None)

    def bind(self, kernel: Any, owner: object) -> Any:
        from taichi.lang.kernel_impl import _BoundedDifferentiableMethod

        try:
            bound: Any = _BoundedDifferentiableMethod(owner, _Unbound(kernel._primal, kernel._adjoint))
        except self.lang.TaichiSyntaxError as cause:
            name = type(owner).__name__
            words = f"class `{name}` of kernel `{self.function_of(kernel).__name__}` is not data-oriented"
            lang = module_name(self.name, self.function_of(kernel))
            raise KernelError(refusal(words, remedy=f"Decorate `{name}` with @{lang}.data_oriented.")) from cause
        bound.__name__ = self.function_of(bound).__name__
        return bound

    def is_method(self, kernel: Any) -> bool:
        return kernel._primal.classkernel

    def _metas(self, kernel: Any) -> list[Any]:
        return kernel._primal.arguments[1 if self.is_method(kernel) else 0 :]

    def inner_function(self, candidate: object) -> Callable[..., Any] | None:
        function = getattr(candidate, "__func__", candidate)
        if getattr(function, "_is_taichi_function", False) and not self.owns(function):
            return function.func.func  # type: ignore[attr-defined]  # ours after the check above
        return None

    def is_bound(self, function: object) -> bool:
        return isinstance(function, MethodType)

    def runtime(self) -> Any:
        impl = sys.modules.get("taichi.lang.impl")  # asked at every call of an op: an import would cost 1 us
        if impl is None or impl.pytaichi.prog is None:
            return _forks.restart_after_fork(self)
        return impl.pytaichi

    def is_current(self, runtime: Any) -> bool:
        impl = self.lang.lang.impl
        return impl.pytaichi is runtime and runtime.prog is not None

    def detach_program(self) -> Any:
        runtime = self.lang.lang.impl.pytaichi
        program, runtime.prog = runtime.prog, None
        return program

    @property
    def needs_stack_depth(self) -> bool:
        return True

    def _quick_front_end(self, kernel: Any, options: CompileOptions) -> AbstractContextManager[None]:
        from taichi.lang import kernel_impl
        from taichi.lang.ast.ast_transformer_utils import ASTTransformerContext

        return _front_ends.replace_attributes(
            (ASTTransformerContext, "get_pos_info", _front_ends.describe_position(ASTTransformerContext.get_pos_info)),
            (kernel_impl, "getsourcelines", _front_ends.find_lines(kernel_impl.getsourcelines)),
            (kernel_impl, "textwrap", _front_ends.WRAPPING),
        )

    def _find_compiled(self, kernel: Any, key: Any) -> Any:
        return kernel.compiled_kernels[key]

    def _make_slot(self, place: int) -> Any:
        return (place,)

    def _find_compiler_options(self, config: Any, options: CompileOptions) -> dict[str, Any]:
        changed = super()._find_compiler_options(config, options)
        if options.stack:
            changed["ad_stack_size"] = options.stack
        # Through an inner loop that does `y[i] += a; y[j] += b`, Taichi 1.7.4 holds `y[i]` in a register: one is lost.
        # The same happens to one element that has two pointers, unless its search for common expressions merges them.
        # That takes a time that goes with the square of a kernel's statements, and nothing else needs it here.
        if options.is_simd or options.is_aliased:
            changed["cache_loop_invariant_global_vars"] = False
            # For meshes alone. But Taichi finds a compiled kernel again by this option, and not by the one above.
            changed["mesh_localize_to_end_mapping"] = False
            if options.is_printed and not options.adjoint:
                changed["opt_level"] = 0
        return changed

    def _explain_no_capture(self, program: Any) -> str:
        return "Taichi launches on CUDA's legacy default stream, which a capture forbids"

    def free_kernel(self, called: Any) -> Any:
        decorated: Any = _Unbound(called, vars(called)["grad"])  # the reverse kernel, no memory
        decorated._is_wrapped_kernel = True
        return decorated

    @property
    def _kernel_type(self) -> type:
        from taichi.lang.kernel_impl import Kernel

        return Kernel

    def facts(self) -> Facts:
        _common.require_home("taichi")
        from taichi._lib import core
        from taichi.lang import kernel_impl
        from taichi.lang.ast.ast_transformer_utils import ASTTransformerContext

        roots = {
            **self._list_common_roots(core),
            "snode": core.SNode,
            "expression": core.Expr,
            "context_of_tree": ASTTransformerContext,
            "kernel_impl": kernel_impl,
        }
        kernel = ("func", "arguments", "classkernel", "return_type", "ensure_compiled", "compiled_kernels")
        paths = (
            *self._list_common_paths(kernel, "impl.pytaichi", "prog"),
            "config.ad_stack_size",
            "context_of_tree.get_pos_info",
            "kernel_impl.getsourcelines",
            "kernel_impl.textwrap.fill",
        )
        return Facts(roots, paths)


class _Unbound:
    """An object with the attributes of a kernel that Taichi reads when it binds one."""

    _is_staticmethod = False

    def __init__(self, primal: Any, adjoint: Any) -> None:
        self._primal, self._adjoint = primal, adjoint
