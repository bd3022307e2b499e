"""Ops as users write them: at the top of a module, before any engine was started. Pickled by name."""

import quadrants as qd
import taichi as ti

import tinsmith as ts

GAIN = 2.0


@ts.op("x[n] -> y[n]")
@ti.kernel
def taichi_square(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = x[i] * x[i]


@ts.op("x[n] -> y[n]")
@qd.kernel
def quadrants_square(x: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in x:
        y[i] = x[i] * x[i]


@ts.op("inout x[n] ->")
@ti.kernel
def taichi_grow(x: ti.types.ndarray()):
    for i in x:
        x[i] *= GAIN


@ts.op("x[n] -> y[n]")
@ti.kernel
def taichi_gain(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = GAIN * x[i]


@ts.op("x[n] -> y[n]")
@qd.kernel
def quadrants_gain(x: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in x:
        y[i] = GAIN * x[i]
