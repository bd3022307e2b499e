"""Tapes with counted entries: an adjoint that wants to run more steps than were counted stays in its part of the tape.

The kernel that counts and the adjoint may round a number differently, so that the one ends a loop a step earlier.
"""

# pyright: reportOptionalMemberAccess=false

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.calls import _tape_room
from tinsmith.calls._tape_room import TapeRoom

pytestmark = pytest.mark.compiled_engine

ARRAY = "lang.types.ndarray()"
GAP, UNTOUCHED = 8, -12345
BODIES = {
    "numbers in a while": """
        t, s = 0.1, 0.0
        while t < end[r]:
            s = lang.tan(0.1 * s * s) + x[r]
            t += 0.5 * lang.exp(-x[r] * t) + 0.01
        y[r] = s
""",
    "numbers in a for with a break": """
        t = 0.1
        for k in range(50):
            if t > end[r]:
                break
            t += 0.5 * lang.exp(-x[r] * t) + 0.01
        y[r] = t * t
""",
    "a range with a computed end": """
        t = 0.1
        for k in range(lang.cast(3.0 * lang.exp(x[r]), lang.i32)):
            t += 0.5 * lang.exp(-x[r] * t) + 0.01
        y[r] = t * t
""",
    "a range over two variables in a branch": """
        t = 0.1
        if lang.exp(x[r]) * end[r] > 1.5:
            for j, k in lang.ndrange(2, 3):
                t += 0.5 * lang.exp(-x[r] * t) + 0.01
        n = 0
        while n < 5 * end[r]:
            n += 1
            t += 0.5 * lang.exp(-x[r] * t) + 0.01
        y[r] = t * t
""",
    "a loop in a loop": """
        t, s = 0.1, 1.0
        while t < end[r]:
            u = t
            while u < end[r]:
                u += 0.3 * lang.exp(-x[r] * u) + 0.1
                s = s + 0.1 * lang.exp(-s * u)
            t += 0.5 * lang.exp(-x[r] * t) + 0.01 * s
        y[r] = s
""",
    "elements that are overwritten": """
        t, k = 0.1, 0
        while t < end[r]:
            w[r, k % 3] = lang.sin(w[r, (k + 1) % 3] * w[r, k % 3]) + x[r] * t
            t += 0.5 * lang.exp(-x[r] * t) + 0.01
            k += 1
        y[r] = w[r, 0] * w[r, 1]
""",
    "elements that each iteration overwrites": """
        t = 0.1
        while t < end[r]:
            for k in range(3):
                w[r, k] = lang.sin(w[r, k] * w[r, k]) + x[r] * t
            t += 0.5 * lang.exp(-x[r] * t) + 0.01
        y[r] = w[r, 0] * w[r, 1]
""",
    "candidates of a maximum": """
        t = 0.1
        while t < end[r]:
            lang.atomic_max(y[r % 7], t * lang.tan(0.1 * x[r] * t))
            t += 0.5 * lang.exp(-x[r] * t) + 0.01
""",
}


class Room:
    """Parts of tapes that lie apart, in memory with a known value in each element that no kernel writes.

    Attributes:
        entries: the counted entries of each iteration, by tape.
        tapes: the memory of each tape, with the number of elements that was asked for.
    """

    def __init__(self, monkeypatch, change) -> None:
        self.entries = []
        self.tapes = []

        def find_starts(counts):
            change(counts)
            apart = counts.long() + GAP
            starts = apart.cumsum(0) - apart
            self.entries.append([*zip(starts.tolist(), counts.tolist(), strict=True)])
            return starts.int(), int(apart.sum())

        def allocate(_, count, dtype):
            self.tapes.append((torch.full((count + 64,), UNTOUCHED, dtype=dtype), count))
            return self.tapes[-1][0][:count]

        monkeypatch.setattr(_tape_room, "_find_starts", find_starts)
        monkeypatch.setattr(TapeRoom, "__call__", allocate)

    def count_stray(self):
        """Return how many elements outside of their parts were written."""
        stray = 0
        for memory, count in self.tapes:
            # Entries of a log have several numbers: its tape is as many times as long as all parts together.
            totals = [sum(length + GAP for _, length in parts) for parts in self.entries]
            parts, width = next((p, count // n) for p, n in zip(self.entries, totals, strict=True) if count % n == 0)
            is_outside = torch.ones(len(memory), dtype=torch.bool)
            for start, length in parts:
                is_outside[start * width : (start + length) * width] = False
            stray += int((is_outside & (memory != UNTOUCHED)).sum())
        return stray


def build(lang, body):
    """Build the op of a body."""
    head = f"def kernel(x: {ARRAY}, end: {ARRAY}, w: {ARRAY}, y: {ARRAY}):\n    for r in range(x.shape[0]):"
    spec = "x[r], end[r] -> w[r, 3], y[r]"
    if "w[" not in body:
        head, spec = head.replace(f" w: {ARRAY},", ""), "x[r], end[r] -> y[r]"
    return ts.op(spec)(compile_text(lang, head + body))


@pytest.fixture(autouse=True, params=["several threads", "one thread"])
def threads(configure, request):
    """Run all launches on several threads, or all on one."""
    configure(serial_below="0" if request.param == "several threads" else str(10**12))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_no_iteration_writes_outside_of_its_part(lang, body, monkeypatch):
    def halve(counts):
        counts[::3] //= 2

    room = Room(monkeypatch, halve)
    x = torch.linspace(0.0, 1.0, 101, requires_grad=True)
    values = build(lang, body)(x, torch.linspace(0.5, 4.0, 101))
    (values if isinstance(values, torch.Tensor) else values[-1]).sum().backward()
    assert room.tapes
    assert room.count_stray() == 0
    assert x.grad.isfinite().all()


def test_the_gradient_is_that_of_the_counted_steps(lang, monkeypatch):
    body = """
        t = 0.1
        while t < end[r]:
            t += 0.5 * lang.exp(-x[r] * t) + 0.01
        y[r] = t * t
"""
    Room(monkeypatch, lambda counts: counts.clamp_(max=4))
    x, end = torch.linspace(0.0, 1.0, 101, requires_grad=True), torch.linspace(0.5, 4.0, 101)
    build(lang, body)(x, end).sum().backward()
    exact = x.detach().double().requires_grad_()
    t = torch.full_like(exact, 0.1)
    for _ in range(4):
        t = torch.where(t < end, t + 0.5 * torch.exp(-exact * t) + 0.01, t)
    (t * t).sum().backward()
    torch.testing.assert_close(x.grad.double(), exact.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.each_engine
def test_ends_that_hang_on_the_last_digit(lang, monkeypatch):
    # The kernel that counts runs in lanes, with `exp` in plain arithmetic; the adjoint, with its `tan`, does not.
    room = Room(monkeypatch, lambda counts: None)
    torch.manual_seed(0)
    x = (2.0 * torch.rand(5008)).requires_grad_()
    steps, t = [], torch.full((5008,), 0.1)
    for _ in range(20):
        t = t + 0.5 * torch.exp(-x.detach() * t) + 0.01
        steps.append(t)
    end = torch.stack(steps).gather(0, torch.randint(2, 18, (1, 5008)))[0]
    build(lang, BODIES["numbers in a while"])(x, end).sum().backward()
    assert room.count_stray() == 0
    assert x.grad.isfinite().all()
