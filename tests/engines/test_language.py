"""What an engine's objects are, to who reads a kernel's source."""

import pytest

from tinsmith.engines import Language, get

pytestmark = pytest.mark.each_engine


@pytest.fixture
def language(engine):
    return Language(get(engine))


@pytest.mark.parametrize(
    ("pick", "name"),
    [
        (lambda lang: lang.sin, "lang.ops.sin"),
        (lambda lang: lang.atomic_add, "lang.ops.atomic_add"),
        (lambda lang: lang.static, "lang.impl.static"),
        (lambda lang: lang.grouped, "lang.impl.grouped"),
        (lambda lang: lang.ndrange, "lang._ndrange.ndrange"),
        (lambda lang: lang.loop_config, "lang.misc.loop_config"),
        (lambda lang: lang.Vector, "lang.matrix.Vector"),
        (lambda lang: lang.Matrix, "lang.matrix.Matrix"),
        (lambda lang: lang.Vector.zero, "lang.matrix.Matrix.zero"),
        (lambda lang: lang.math.mix, "math.mathimpl.mix"),
        (lambda lang: lang.randn, "_funcs.randn"),
        (lambda lang: len, ""),
        (lambda lang: 3, ""),
    ],
)
def test_names_of_an_engines_own(language, lang, pick, name):
    assert language.name_of(pick(lang)) == name


def test_functions_written_in_the_language(language, lang):
    @lang.func
    def mine(a):
        return a

    @lang.data_oriented
    class Owner:
        @lang.func
        def theirs(self, a):
            return a

    owner = Owner()
    assert language.function_of(mine).__name__ == "mine"
    assert language.owner_of(mine) is None
    assert not language.is_method(mine)
    assert language.function_of(owner.theirs).__name__ == "theirs"
    assert language.owner_of(owner.theirs) is owner
    assert language.is_method(owner.theirs)
    assert language.function_of(lang.math.mix).__name__ == "mix"
    assert language.function_of(language.matrix_operation("norm")).__name__ == "norm"
    assert language.matrix_operation("no_such") is None
    assert language.function_of(lang.sin) is None
    assert language.function_of(len) is None


def test_an_object_that_is_false_owns_its_functions_too(language, lang):
    @lang.data_oriented
    class Empty:
        def __len__(self):
            return 0

        @lang.func
        def theirs(self, a):
            return a

    owner = Empty()
    assert not owner
    assert language.owner_of(owner.theirs) is owner


def test_real_functions(language, lang):
    @lang.real_func
    def real(v: lang.f32) -> lang.f32:
        return v

    @lang.func
    def mine(v):
        return v

    assert language.is_real(real)
    assert language.function_of(real).__name__ == "real"
    assert not language.is_real(mine)
    assert not language.is_real(lang.math.mix)


def test_types(language, lang):
    assert [language.scalar_type(getattr(lang, kind)) for kind in ("f32", "i64", "u1")] == ["f32", "i64", "u1"]
    assert language.scalar_type(lang.math.vec3) is None
    assert language.scalar_type(float) is None
    assert language.matrix_type(lang.types.vector(3, lang.f64)) == ((3,), "f64")
    assert language.matrix_type(lang.types.matrix(2, 3, lang.i32)) == ((2, 3), "i32")
    assert language.matrix_type(lang.f32) is None
    assert [language.default_of(getattr(lang.math, name)) for name in ("vec2", "mat4", "ivec3")] == ["fp", "fp", "ip"]
    assert language.default_of(lang.types.vector(3, lang.f32)) is None
    assert language.default_types == ("f32", "i32")


def test_structs(language, lang):
    kind = lang.types.struct(a=lang.f32, b=lang.i32)
    assert list(language.struct_type(kind).members) == ["a", "b"]
    assert language.struct_type(lang.f32) is None
    assert dict(language.struct_of(lang.Struct(a=1.5, b=2)).members) == {"a": 1.5, "b": 2}
    field = kind.field(shape=3)
    assert list(language.struct_of(field).members) == ["a", "b"]
    assert language.struct_of(lang.field(lang.f32, 3)) is None


def test_annotations_and_held_vectors(language, lang):
    assert language.is_template(lang.template())
    assert not language.is_template(lang.f32)
    assert language.is_array(lang.types.ndarray())
    assert not language.is_array(lang.template())
    assert language.rows_of(lang.Matrix([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    assert language.rows_of([1, 2]) is None
