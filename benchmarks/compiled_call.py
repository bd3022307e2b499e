"""What a call would take if it were written in C++: `y = 3 x` of 64 numbers on Quadrants.

    python benchmarks/compiled_call.py [--rounds 60] [--out benchmarks/results]

Up to some 100,000 elements most of a call is Python. This script compiles a function in C++ that does what a call does
for this one kernel: it looks at the tensor, allocates the result and starts the kernel with their addresses; with a
gradient it is a Function of torch's C++ interface, whose backward pass runs the same kernel. It is not part of the
package: it knows one kernel with one argument, and nothing of numbers, batches, forward mode or `torch.compile`. It
shows how far a call in Python is from the limit. It needs a C++ compiler and ninja, and takes a minute.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}

import setuptools  # noqa: F401 - before Quadrants, after which torch's build fails otherwise (docs/about/limits.md)
import torch
from torch.utils.cpp_extension import load_inline

import tinsmith as ts
from _harness import Effort, timed
from _kernels import triple
from _report import in_words, machine
from sizes import launch_of, low

RESULTS = Path(__file__).parent / "results"
SOURCE = r"""
#include <torch/extension.h>
namespace py = pybind11;
namespace {
// Never freed: Python has ended when C++ frees its globals.
py::object &launch = *new py::object, &place_of_x = *new py::object, &place_of_y = *new py::object;

py::tuple described(const py::object& place, const at::Tensor& tensor) {
  const auto bytes = static_cast<size_t>(tensor.nbytes());
  return py::make_tuple(place, reinterpret_cast<size_t>(tensor.data_ptr()), bytes, py::make_tuple(tensor.size(0)), 0);
}

at::Tensor run(const at::Tensor& x) {
  TORCH_CHECK(x.scalar_type() == at::kFloat && x.device().is_cpu() && x.dim() == 1 && x.is_contiguous());
  auto y = at::empty(x.sizes(), x.options());
  py::gil_scoped_acquire python;
  launch(py::make_tuple(described(place_of_x, x), described(place_of_y, y)), py::tuple());
  return y;
}

struct Triple : torch::autograd::Function<Triple> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return run(x); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list g) {
    return {run(g[0].contiguous())};
  }
};

at::Tensor call(const at::Tensor& x) {
  return x.requires_grad() && at::GradMode::is_enabled() ? Triple::apply(x) : run(x);
}

void prepare(py::object start, py::object x, py::object y) {
  launch = std::move(start);
  place_of_x = std::move(x);
  place_of_y = std::move(y);
}
}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("call", &call);
  m.def("prepare", &prepare);
}
"""


class ByTorch(torch.autograd.Function):
    """A Function in Python that computes the same with torch's operations."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return 3.0 * x

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return 3.0 * gradients[0]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=60)
    asked.add_argument("--out", type=Path, default=RESULTS, help="folder for the result")
    options = asked.parse_args()
    load, begin = os.getloadavg()[0], time.strftime("%d %B %Y")  # before ours
    with tempfile.TemporaryDirectory() as folder:
        name, flags = "tinsmith_compiled_call", ["-O2"]
        native: Any = load_inline(name, SOURCE, extra_cflags=flags, build_directory=folder)
    lang = import_module("quadrants")
    ts.init("cpu", engine="quadrants")
    op = ts.op("x[n] -> y[n]")(triple(lang))
    x, g = torch.rand(64), torch.rand(64)
    op(x)
    start, slots = launch_of(op, x)
    native.prepare(start, *slots)
    ways = {
        "tinsmith": op,
        "in C++": native.call,
        "torch's operators": lambda x: 3.0 * x,
        "a Function in Python around them": ByTorch.apply,
    }
    for way in ways.values():
        p = x.clone().requires_grad_()
        torch.testing.assert_close(way(x), 3.0 * x)
        way(p).backward(g)
        torch.testing.assert_close(p.grad, 3.0 * g)
    effort = Effort(options.rounds, 1e-3)
    forward = timed({who: lambda way=way: way(x) for who, way in ways.items()}, effort)
    p = x.clone().requires_grad_()
    both = timed({who: lambda way=way: torch.autograd.grad(way(p), p, g) for who, way in ways.items()}, effort)
    lines = [
        "# A call in C++, on cpu",
        "",
        f"`y = 3 x` of 64 numbers; the lowest tenth of {options.rounds} rounds.",
        "",
    ]
    lines += [f"{machine()}. {begin}, load average before: {load:.1f}.", ""]
    lines += ["| way | forward | forward and backward |", "|---|---:|---:|"]
    for who in ways:
        cells = " | ".join(f"{in_words(low(t[who]))} ({low(t[who]) / low(t['tinsmith']):.2f})" for t in (forward, both))
        lines.append(f"| {who} | {cells} |")
    text = "\n".join([*lines, "", "In parentheses: the time as a share of tinsmith's.", ""])
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "compiled-call-cpu.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
