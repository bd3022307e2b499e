"""Fields whose numbers lie in memory as a tensor's do are copied by `memmove`, all others by a kernel."""

import pytest
import torch

from tinsmith.calls.fields import Copy, Transfer
from tinsmith.engines import of_field, unwrap

pytestmark = [pytest.mark.compiled_engine, pytest.mark.each_engine]


def make_plain(lang):
    return lang.field(lang.f64, (4, 3))


def make_vectors(lang):
    return lang.Vector.field(3, lang.f32, (4, 2))


def make_matrices(lang):
    return lang.Matrix.field(2, 3, lang.f64, 5)


def make_shifted(lang):
    return lang.field(lang.f64, 6, offset=-3)


def make_gradient(lang):
    return lang.field(lang.f64, 7, needs_grad=True).grad


def make_member(lang):
    members = {"pos": lang.types.vector(3, lang.f64), "mass": lang.f32}
    return lang.Struct.field(members, shape=(5,), layout=lang.Layout.SOA).pos


def make_integers(lang):
    return lang.field(lang.i32, (3, 2))


def make_ndarray(lang):
    return lang.Matrix.ndarray(2, 2, lang.f64, 3)


SIDE_BY_SIDE = [make_plain, make_vectors, make_matrices, make_shifted, make_gradient, make_member, make_integers]


def make_interleaved(lang):
    x, y = (lang.field(lang.f64) for _ in range(2))
    lang.root.dense(lang.i, 8).place(x, y)
    return x


def make_with_its_gradient(lang):
    x = lang.field(lang.f64, needs_grad=True)
    lang.root.dense(lang.i, 8).place(x, x.grad)
    return x.grad


def make_entries_apart(lang):
    return lang.Vector.field(3, lang.f64, 8, layout=lang.Layout.SOA)


def make_member_of_rows(lang):
    return lang.Struct.field({"pos": lang.types.vector(3, lang.f64), "mass": lang.f32}, shape=(5,)).mass


def make_columns_first(lang):
    return lang.field(lang.f64, (3, 4), order="ji")


def make_tiles(lang):
    x = lang.field(lang.f64)
    lang.root.dense(lang.ij, (2, 2)).dense(lang.ij, (4, 2)).place(x)
    return x


def make_sparse(lang):
    x = lang.field(lang.f64)
    lang.root.pointer(lang.i, 2).dense(lang.i, 4).place(x)
    return x


APART = [
    make_interleaved,
    make_with_its_gradient,
    make_entries_apart,
    make_member_of_rows,
    make_columns_first,
    make_tiles,
    make_sparse,
]


@pytest.mark.parametrize("make", [*SIDE_BY_SIDE, *APART, make_ndarray], ids=lambda make: make.__name__)
def test_a_transfer_moves_every_number_of_any_layout(lang, make):
    field = make(lang)
    engine = of_field(field)
    facts = engine.field_facts(unwrap(field), "x")

    def transfer(kind, *tensors):
        Transfer(engine, [Copy(kind, field, facts)]).run(tensors, is_serial=True)

    def number(start):
        return torch.arange(start, start + facts.count).reshape(facts.shape + facts.element).to(facts.dtype)

    def read():
        return torch.as_tensor(field.to_numpy()).reshape(facts.shape + facts.element)

    given, held = number(1), torch.empty_like(number(1))
    transfer("load", given)
    torch.testing.assert_close(read(), given)
    transfer("store", held)
    torch.testing.assert_close(held, given)
    field.from_numpy(number(7).numpy())
    transfer("store", held)
    torch.testing.assert_close(held, number(7))
    transfer("restore", given)
    torch.testing.assert_close(read(), given)
    transfer("clear")
    torch.testing.assert_close(read(), torch.zeros_like(given))
    if make is not make_ndarray:
        is_found = engine.find_row_major_memory(field) != 0
        assert is_found == (make in SIDE_BY_SIDE and engine.name == "quadrants")


def test_a_field_is_stored_before_it_is_loaded(lang):
    """One transfer may save what a field holds and fill it; that it fills integers by a kernel changes no order."""
    fields = [lang.field(lang.f64, 4), lang.field(lang.i32, 4)]
    engine = of_field(fields[0])
    copies = [Copy(kind, one, engine.field_facts(one, "x")) for kind in ("store", "load") for one in fields]
    for one in fields:
        one.fill(3)
    held = [torch.empty(4, dtype=dtype) for dtype in (torch.float64, torch.int32)]
    given = [torch.full_like(one, 5) for one in held]
    Transfer(engine, copies).run([*held, *given], is_serial=True)
    assert [one.tolist() for one in held] == [[3] * 4] * 2
    assert [one.to_numpy().tolist() for one in fields] == [[5] * 4] * 2
