"""Prints how often a loop over a sparse field visits each element: `python sparse_visits.py taichi`.

A process of its own, since an engine that visits elements which are not there writes over other memory.
"""

import importlib
import sys

lang = importlib.import_module(sys.argv[1])
lang.init(arch=lang.cpu, log_level="error")
x = lang.field(lang.i32)
lang.root.pointer(lang.i, 2).dense(lang.i, 3).place(x)
visits = lang.field(lang.i32, shape=8)


@lang.kernel
def fill():
    for i in range(6):
        x[i] = 1


@lang.kernel
def visit():
    for i in x:
        visits[i] += 1


fill()
visit()
sys.stdout.write(f"{visits.to_numpy().tolist()}\n")
