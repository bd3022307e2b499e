"""A jet of smoke, whose functions the engine compiles: it reads their annotations, which must not be text."""

import quadrants as qd


@qd.data_oriented
class Jet:
    """A jet that blows upward from a point near the ground."""

    @qd.func
    def get_pos(self, t: qd.f32):
        return qd.Vector([0.5, 0.1, 0.5])

    @qd.func
    def get_factor(self, i: qd.i32, j: qd.i32, k: qd.i32, dx: qd.f64, t: qd.f64):
        near = qd.Vector([i + 0.5, j + 0.5, k + 0.5]) * dx - qd.Vector([0.5, 0.1, 0.5])
        return qd.exp(-near.norm_sqr() * 20.0)

    @qd.func
    def get_tan_dir(self, t: qd.f64):
        return qd.Vector([0.1, 1.0, 0.0])
