"""Integers among arguments: sizes, counts and indices take NumPy's, and refuse a bool and a float, wherever they go."""

import numpy as np
import pytest
import torch

import tinsmith as ts
from tinsmith._integers import read_integer, read_integers

INTEGERS = [2, np.int64(2), np.uint8(2), torch.tensor(2), torch.tensor([2], dtype=torch.int16), np.array(2)]
OTHERS = [
    True,
    np.True_,
    torch.tensor(True),
    2.0,
    np.float32(2),
    torch.tensor(2.0),
    "2",
    None,
    [2],
    torch.tensor([2, 2]),
]


@pytest.mark.parametrize("value", INTEGERS, ids=repr)
def test_integers_of_every_type_become_python_s(value):
    number = read_integer(value)
    assert type(number) is int
    assert number == 2
    assert read_integers([value, value]) == (2, 2)
    assert read_integers(value) == (2,)


@pytest.mark.parametrize("value", OTHERS, ids=repr)
def test_other_values_are_none(value):
    assert read_integer(value) is None
    assert read_integers((2, value)) == ()


def test_a_symbol_stays_one():
    sizes = []

    def double(x):
        sizes.append(read_integer(x.shape[0]))
        return x * read_integer(x.shape[0])

    graph = torch.fx.experimental.proxy_tensor.make_fx(double, tracing_mode="symbolic")(torch.ones(3))
    assert isinstance(sizes[0], torch.SymInt)
    torch.testing.assert_close(graph(torch.ones(5)), torch.full((5,), 5.0))


# Public arguments -----------------------------------------------------------------------------
def scan(**options):
    x = torch.arange(8.0)
    return ts.scan(lambda state, row: (state + row, None), torch.zeros(()), x, **options)[0]


def repeat(length):
    return ts.scan(lambda state, _: (state + 1, None), torch.zeros(()), length=length)[0]


def network(*sizes, **options):
    config = {"otype": "FullyFusedMLP", "n_neurons": 16, "n_hidden_layers": 1}
    return ts.nn.Network(*sizes, config, **options).params


def encoding(n_input_dims, **options):
    return ts.nn.Encoding(n_input_dims, {"otype": "HashGrid", "n_levels": 2, "log2_hashmap_size": 8}, **options).params


def array(grid_shape, n_input_dims=3, n_output_dims=2, **options):
    return ts.nn.NetworkArray(grid_shape, n_input_dims, n_output_dims, **options).params


def harmonics(degree):
    return ts.render.gaussians.spherical_harmonics(degree, torch.tensor([[0.0, 0.6, 0.8]]), torch.ones(1, 9, 3))


def image_rays(width, height):
    intrinsics = torch.tensor([[50.0, 0, 1], [0, 50, 1], [0, 0, 1]])
    return ts.render.image_rays(torch.eye(4), intrinsics, width, height).directions


def rasterize(width=16, height=16, tile_size=16, sh_degree=None):
    colors = torch.ones(1, 3) if sh_degree is None else torch.ones(1, 9, 3)
    intrinsics = torch.tensor([[[20.0, 0, 8], [0, 20, 8], [0, 0, 1]]])
    given = torch.tensor([[0.0, 0, 2]]), torch.tensor([[1.0, 0, 0, 0]]), torch.full((1, 3), 0.3), torch.tensor([0.8])
    options = {"tile_size": tile_size, "sh_degree": sh_degree}
    return ts.render.gaussians.rasterization(*given, colors, torch.eye(4)[None], intrinsics, width, height, **options)[
        0
    ]


def offsets(tile_width, tile_height, n_images=1):
    ids = torch.zeros(0, dtype=torch.int64)
    return ts.render.gaussians.isect_offset_encode(ids, n_images, tile_width, tile_height)


def tiles_of_packed(n_images):
    given = torch.tensor([[4.0, 4.0]]), torch.tensor([[2, 2]]), torch.tensor([1.0])
    options = {"packed": True, "image_ids": torch.zeros(1, dtype=torch.int64)}
    return ts.render.gaussians.isect_tiles(*given, 16, 1, 1, n_images=n_images, **options)[0]


def occupancy(resolution, levels=1):
    return ts.render.OccupancyGrid([-1, -1, -1, 1, 1, 1], resolution, levels).occupied


def estimator(resolution, levels=1):
    return ts.render.nerfacc.OccGridEstimator([-1, -1, -1, 1, 1, 1], resolution, levels).binaries


def march(**options):
    rays = torch.tensor([[-2.0, 0, 0]]), torch.tensor([[1.0, 0, 0]])
    return ts.render.march(*rays, [-1, -1, -1, 1, 1, 1], step=0.25, **options).t


def resample(n_intervals):
    edges, cdfs = torch.linspace(0, 1, 4).expand(2, 4), torch.linspace(0, 1, 4).expand(2, 4)
    return ts.render.importance_sampling(edges, cdfs, n_intervals).edges


def accumulate(n_rays):
    return ts.render.nerfacc.accumulate_along_rays(torch.ones(3), None, torch.tensor([0, 0, 1]), n_rays)


def proposals(n_rays):
    return ts.render.sample_proposals([], [], 4, n_rays=n_rays, near=1.0, far=2.0).t


def estimator_of_proposals(n_rays):
    return ts.render.nerfacc.PropNetEstimator().sampling([], [], 4, n_rays, 1.0, 2.0)[0]


ENTRY_POINTS = {
    "scan length": repeat,
    "scan unroll": lambda number: scan(unroll=number),
    "scan checkpoint": lambda number: scan(checkpoint=number),
    "scan keep": lambda number: scan(keep=number),
    "network input": lambda number: network(number, 3),
    "network output": lambda number: network(3, number),
    "network alignment": lambda number: network(3, 3, alignment=number),
    "network seed": lambda number: network(3, 3, seed=number),
    "encoding": encoding,
    "encoding seed": lambda number: encoding(2, seed=number),
    "array": array,
    "array of two axes": lambda number: array((number, number)),
    "array input": lambda number: array(4, number),
    "array output": lambda number: array(4, 3, number),
    "array seed": lambda number: array(4, seed=number),
    "harmonics": harmonics,
    "image width": lambda number: image_rays(number, 3),
    "image height": lambda number: image_rays(3, number),
    "raster width": lambda number: rasterize(width=number),
    "raster height": lambda number: rasterize(height=number),
    "raster tile": lambda number: rasterize(tile_size=number),
    "raster degree": lambda number: rasterize(sh_degree=number),
    "tiles": lambda number: offsets(number, number),
    "images of offsets": lambda number: offsets(1, 1, number),
    "images of tiles": tiles_of_packed,
    "rays to pack": lambda number: ts.render.pack(torch.tensor([0, 0, 1]), number),
    "rays to accumulate": accumulate,
    "rays of proposals": proposals,
    "rays of an estimator": estimator_of_proposals,
    "occupancy": occupancy,
    "occupancy of each axis": lambda number: occupancy([number] * 3),
    "occupancy levels": lambda number: occupancy(4, number),
    "march": lambda number: march(max_steps=number),
    "march capacity": lambda number: march(capacity=number),
    "intervals": resample,
    "estimator": estimator,
    "estimator of each axis": lambda number: estimator([number] * 3),
    "estimator levels": lambda number: estimator(4, number),
}


@pytest.mark.parametrize("entry", ENTRY_POINTS)
def test_entry_points_take_numpy_s_integers_and_refuse_other_types(entry):
    call = ENTRY_POINTS[entry]
    expected = call(2)
    for number in (np.int64(2), torch.tensor(2)):
        torch.testing.assert_close(call(number), expected)
    for number in (True, np.True_, 2.0):
        with pytest.raises(ts.ArgumentError):
            call(number)


def test_a_count_below_zero_is_named():
    words = "`n_rays` of `pack` is not a count\n  got       -1\n  expected  an integer, 0 or more"
    with pytest.raises(ts.ArgumentError, match=words):
        ts.render.pack(torch.zeros(0, dtype=torch.int64), -1)
    assert ts.render.pack(torch.zeros(0, dtype=torch.int64), 0).shape == (0, 2)


def test_projections_of_gradcheck_follow_the_same_rule(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 2 * x[i]

    assert ts.gradcheck(double, torch.ones(2), projections=np.int64(2)).ok
    for number in (True, 2.0, 0):
        with pytest.raises(ts.ArgumentError, match="`projections` of `ts.gradcheck` must be a positive integer"):
            ts.gradcheck(double, torch.ones(2), projections=number)


def test_a_seed_of_numpy_s_is_stored_as_python_s():
    assert type(ts.nn.Encoding(2, seed=np.int64(3)).seed) is int


def test_sizes_of_an_op_follow_the_same_rule(lang):
    @lang.kernel
    def fill(y: lang.types.ndarray()):
        for i in y:
            y[i] = 1.0

    op = ts.op("-> y[n]: f32")(fill)
    for number in (2, np.int64(2), torch.tensor(2)):
        assert op(n=number).shape == (2,)
    for number in (True, np.True_, torch.tensor(True), 2.0):
        with pytest.raises(ts.ArgumentError, match="dim `n` of op `fill` must be an integer"):
            op(n=number)


def test_dims_of_a_tube_follow_the_same_rule(lang):
    @lang.kernel
    def double(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = 2 * x[i]

    def make(size):
        tube = ts.Tube().register_input_tensor((size,), torch.float32, "x", False)
        return (
            tube.register_output_tensor((size,), torch.float32, "y", False).register_kernel(double, ["x", "y"]).finish()
        )

    assert make(np.int64(3))(torch.ones(3)).tolist() == [2, 2, 2]
    for size in (True, 3.0):
        with pytest.raises(ts.ShapeError, match="is not a dim"):
            make(size)


def test_the_index_of_a_rollout_s_input_follows_the_same_rule(lang):
    x, y = lang.field(lang.f32, (2, 3)), lang.field(lang.f32, 3)

    @lang.kernel
    def double():
        for i in y:
            y[i] = 2 * x[1, i]

    run = ts.rollout(lambda: double(), {"x": (x, np.int64(1))}, {"y": y})
    assert run(torch.ones(3)).tolist() == [2, 2, 2]
    for index in (True, 1.0):
        with pytest.raises(ts.ArgumentError, match="is given by an invalid index"):
            ts.rollout(double, {"x": (x, index)}, {"y": y})


# Arguments of kernels -------------------------------------------------------------------------
def make_shift(lang):
    @lang.kernel
    def shift(x: lang.types.ndarray(), n: lang.i32, y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] + n

    return ts.op("x[m] -> y[m]")(shift)


@pytest.mark.parametrize(
    ("annotation", "number", "remedy"),
    [
        ("u8", -1, "Annotate `n` with a signed integer."),
        ("u8", 256, "Annotate `n` with a wider integer."),
        ("i64", 2**63, "Pass a number that 64 bits hold."),
    ],
)
def test_numbers_that_an_annotation_does_not_hold(lang, annotation, number, remedy):
    @lang.kernel
    def fill(n: getattr(lang, annotation), y: lang.types.ndarray()):
        for i in y:
            y[i] = n

    with pytest.raises(ts.ArgumentError, match="argument `n` of op `fill` does not fit its annotation") as refused:
        ts.op("-> y[3]: i64")(fill)(number)
    assert str(refused.value).endswith(remedy)


def make_affine(lang):
    @lang.kernel
    def affine(x: lang.types.ndarray(), n: lang.types.vector(2, lang.i32), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] + n[0] + 0 * n[1]

    return ts.op("x[m] -> y[m]")(affine)


@pytest.mark.parametrize("is_later", [False, True])
def test_integers_of_kernels_may_be_flags_and_whole_floats(lang, is_later):
    op = make_shift(lang)
    for number in (3, np.int64(3), True, np.True_, 3.0, np.float32(3)):
        assert op(torch.zeros(1), number).tolist() == [int(number)]
        if not is_later:
            op = make_shift(lang)
    for number in (2.5, np.float32(2.5), float("nan"), float("inf"), "3"):
        with pytest.raises(ts.ArgumentError, match="scalar argument `n` of op `shift` must be an integer"):
            op(torch.zeros(1), number)


@pytest.mark.parametrize("is_later", [False, True])
def test_vectors_of_integers_hold_integers_that_fit(lang, is_later):
    """A fraction was cut off, and 2^40 became 0, silently."""
    op = make_affine(lang)
    if is_later:
        op(torch.zeros(1), [1, 2])
    for numbers in ([3, 1], (3, True), [3.0, 1], np.array([3, 1]), lang.Vector([3, 1])):
        assert op(torch.zeros(1), numbers).tolist() == [3]
    for numbers in ([1.5, 2], np.array([1.5, 2])):
        with pytest.raises(ts.ArgumentError, match=r"vector argument `n\[0\]` of op `affine` must be an integer"):
            op(torch.zeros(1), numbers)
    with pytest.raises(ts.ArgumentError, match="vector argument `n` of op `affine` does not fit its annotation"):
        op(torch.zeros(1), [2**40, 1])
