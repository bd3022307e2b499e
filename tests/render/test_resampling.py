"""Resampling of rays against plain torch: values, and the gradients of the loss."""

from __future__ import annotations

import pytest
import torch

import tinsmith as ts
from support.packed import COUNTS, count_samples, make_rays
from tinsmith import reference, render

CLOSE = {"rtol": 1e-9, "atol": 1e-11}
RAGGED = COUNTS["ragged"]


def edges_on(rays):
    """Return random edges and cdfs, of which a quarter are as the one before, and some numbers that no ray names."""
    edges, cdfs = (torch.rand(count_samples(rays), dtype=torch.float64) for _ in range(2))
    cdfs[torch.rand(len(cdfs)) < 0.25] = 0
    for part in each_ray(rays):
        edges[part] = edges[part].cumsum(0) + 2
        cdfs[part] = cdfs[part].cumsum(0) / 8
    return edges, cdfs


def each_ray(rays):
    return [slice(start, start + count) for start, count in rays.tolist()]


def test_neighbors_agree_with_the_twin(engine):
    rays, value_rays = make_rays([4, 2, 0, 9], gap=1), make_rays([6, 3, 2, 40], gap=2)
    edges, _ = edges_on(rays)
    values = 10 * torch.rand(count_samples(value_rays), dtype=torch.float64)
    values[value_rays[0, 0]] = edges[rays[0, 0] + 1]  # on an edge
    values[value_rays[0, 0] + 1] = edges[rays[0].sum() - 1]  # on the last edge
    left, right = render.searchsorted(edges, values, rays, value_rays, engine=engine)
    assert left.dtype == right.dtype == torch.int64
    for own, theirs in zip(each_ray(rays), each_ray(value_rays), strict=True):
        if own.start == own.stop:
            assert (left[theirs] == -1).all() and (right[theirs] == -1).all()
            continue
        expected = reference.searchsorted(edges[own], values[theirs])
        torch.testing.assert_close((left[theirs] - own.start, right[theirs] - own.start), expected)


def test_dense_neighbors_index_rows(engine):
    edges = torch.rand(3, 5, dtype=torch.float64).cumsum(1)
    values = edges[:, :-1] + 0.5 * edges.diff()
    left, right = render.searchsorted(edges, values.flip(1), engine=engine)
    torch.testing.assert_close(left, torch.tensor([[3, 2, 1, 0]] * 3))
    torch.testing.assert_close(right, left + 1)
    none = render.searchsorted(edges[:, :0], values, engine=engine)
    assert (none.left == -1).all() and (none.right == -1).all()


@pytest.mark.parametrize("counts", [[1, 5, 0, 2, 3], [7] * 5], ids=["ragged", "alike"])
def test_packed_intervals_agree_with_the_twin(engine, counts):
    rays = make_rays([6, 3, 4, 0, 2], gap=1)
    edges, cdfs = edges_on(rays)
    cdfs[each_ray(rays)[1]] = 0.25  # without weight
    offsets = torch.rand(5, dtype=torch.float64)
    sampled = render.importance_sampling(edges, cdfs, torch.tensor(counts), rays, jitter=offsets, engine=engine)
    assert sampled.rays[:, 1].tolist() == counts
    assert sampled.edge_rays[:, 1].tolist() == [count + 1 if count else 0 for count in counts]
    assert len(sampled.t) == sum(counts) and len(sampled.edges) == int(sampled.edge_rays[:, 1].sum())
    old, new, new_edges = (each_ray(one) for one in (rays, sampled.rays, sampled.edge_rays))
    for i, count in enumerate(counts):
        if count and rays[i, 1]:
            expected = reference.importance_sampling(edges[old[i]], cdfs[old[i]], count, float(offsets[i]))
            torch.testing.assert_close((sampled.edges[new_edges[i]], sampled.t[new[i]]), expected, **CLOSE)
        else:
            assert (sampled.edges[new_edges[i]] == 0).all() and (sampled.t[new[i]] == 0).all()


@pytest.mark.parametrize("m", [1, 2, 9])
def test_dense_intervals_agree_with_the_twin(engine, m):
    edges = torch.rand(4, 6, dtype=torch.float64).cumsum(1)
    cdfs = torch.rand(4, 6, dtype=torch.float64).cumsum(1)
    edges, t, *rest = render.importance_sampling(old := edges, cdfs, m, engine=engine)
    assert rest == [None, None] and edges.shape == (4, m + 1) and t.shape == (4, m)
    for i in range(4):
        torch.testing.assert_close((edges[i], t[i]), reference.importance_sampling(old[i], cdfs[i], m), **CLOSE)


def test_a_weight_of_one_place_keeps_all_samples_there(engine):
    cdfs = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    edges, t, *_ = render.importance_sampling(
        torch.tensor([[0.0, 1.0, 2.0, 9.0]]), cdfs, 64, jitter=True, engine=engine
    )
    assert t.min() >= 1 and t.max() <= 2 and (edges.diff() >= 0).all()
    assert 0.9 < edges.min() and edges.max() < 2.1


def test_jitter_is_drawn_by_the_generator():
    edges = torch.tensor([[0.0, 1.0]]).expand(3, 2)
    draws = [render.importance_sampling(edges, edges, 4, jitter=torch.Generator().manual_seed(1)).t for _ in range(2)]
    torch.testing.assert_close(*draws)
    starts = torch.rand(3, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(draws[0], (torch.arange(4) + starts[:, None]) / 4)


def both_on(rays, proposal_rays):
    """Return edges and cdfs, and a proposal's, which cover the same stretch of each ray."""
    given = [*edges_on(rays), *edges_on(proposal_rays)]
    for own, theirs in zip(each_ray(rays), each_ray(proposal_rays), strict=True):
        edges, others = given[0][own], given[2][theirs]
        if len(edges):
            others.sub_(others[0].clone()).mul_((edges[-1] - edges[0]) / others[-1]).add_(edges[0])
            others[-1] = edges[-1]
    return given


def test_the_loss_and_its_gradients_agree_with_the_twin(engine):
    rays, proposal_rays = make_rays([5, 2, 0, 11], gap=1), make_rays([3, 4, 0, 6], gap=2)
    edges, cdfs, others, other_cdfs = both_on(rays, proposal_rays)
    other_cdfs *= 0.7
    results = []
    for by in ("ours", "twin"):
        leaves = [one.clone().requires_grad_() for one in (cdfs, other_cdfs)]
        given = (edges, leaves[0], others, leaves[1])
        if by == "ours":
            loss = render.proposal_loss(*given, rays, proposal_rays, engine=engine)
        else:
            parts = zip(each_ray(rays), each_ray(proposal_rays), strict=True)
            rows = [(edges[a], leaves[0][a], others[b], leaves[1][b]) for a, b in parts]
            loss = torch.stack([reference.proposal_loss(*row) if len(row[0]) else edges.new_zeros(()) for row in rows])
        factors = torch.arange(1, 5, dtype=torch.float64)
        results.append((loss, *torch.autograd.grad((factors * loss).sum(), leaves)))
    assert (results[0][0] > 0).sum() >= 2 and results[0][0][2] == 0 and results[0][2].abs().max() > 0
    for ours, twin in zip(*results, strict=True):
        torch.testing.assert_close(ours, twin, **CLOSE)


def test_a_proposal_that_encloses_the_weights_has_no_loss(engine):
    edges = torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64)
    cdfs = torch.tensor([[0.0, 0.5, 1.0]], dtype=torch.float64)
    proposal_cdfs = torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    loss = render.proposal_loss(edges, cdfs, edges, proposal_cdfs, engine=engine)
    assert loss.item() == 0 and (torch.autograd.grad(loss.sum(), proposal_cdfs)[0] == 0).all()


def test_first_and_second_derivatives_of_the_loss(engine):
    rays, proposal_rays = make_rays([4, 0, 3]), make_rays([3, 0, 2])
    edges, cdfs, others, other_cdfs = both_on(rays, proposal_rays)
    for part in each_ray(rays):  # away from weights of 0, where the slope of 1 / weight is steep
        cdfs[part] = torch.linspace(0, 0.9, part.stop - part.start, dtype=torch.float64)
    leaves = [cdfs.requires_grad_(), (other_cdfs * 0.2).requires_grad_()]

    def loss(cdfs, other_cdfs):
        return render.proposal_loss(edges, cdfs, others, other_cdfs, rays, proposal_rays, engine=engine)

    assert loss(*leaves).max() > 0
    assert torch.autograd.gradcheck(loss, leaves)
    assert torch.autograd.gradgradcheck(loss, leaves)


def parts_of(engine):
    """Return each resampling function with dense edges and cdfs (n, k), and whether it is differentiable."""
    thirds = torch.tensor([0.3, 0.6, 0.8], dtype=torch.float64)

    def loss(edges, cdfs):
        ends = torch.stack([edges[:, 0], edges[:, 3], edges[:, -1]], 1)
        return render.proposal_loss(edges, cdfs, ends, cdfs[:, 1:4] / 5, engine=engine)

    def slopes(edges, cdfs):
        return torch.func.grad(lambda cdfs: (loss(edges, cdfs) * thirds).sum())(cdfs)

    return {
        "searchsorted": lambda edges, cdfs: torch.stack(render.searchsorted(edges, 9 * cdfs, engine=engine)),
        "importance_sampling": lambda *given: render.importance_sampling(*given, 4, jitter=thirds, engine=engine).edges,
        "proposal_loss": loss,
        "gradient of proposal_loss": slopes,
    }


PARTS = ("searchsorted", "importance_sampling", "proposal_loss", "gradient of proposal_loss")


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", PARTS)
def test_compiled_and_over_batches_it_gives_the_same(engine, name):
    part = parts_of(engine)[name]
    edges = torch.rand(2, 3, 8, dtype=torch.float64).cumsum(2)
    cdfs = torch.rand(2, 3, 8, dtype=torch.float64).cumsum(2) / 8
    each = torch.stack([part(*one) for one in zip(edges, cdfs, strict=True)])
    assert each.any()
    torch.testing.assert_close(torch.func.vmap(part)(edges, cdfs), each, **CLOSE)
    compiled = torch.compile(part, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(edges[0], cdfs[0]), each[0], **CLOSE)


def test_numbers_of_intervals_by_ray_compile_in_one_graph(engine):
    def sampled(edges, cdfs, counts):
        return render.importance_sampling(edges, cdfs, counts, engine=engine)

    edges, cdfs = (torch.rand(4, 6, dtype=torch.float64).cumsum(1) for _ in range(2))
    compiled = torch.compile(sampled, fullgraph=True, backend="aot_eager")
    for counts in ([1, 2, 0, 3], [5, 1, 1, 2]):
        given = edges, cdfs, torch.tensor(counts)
        for compiled_one, plain in zip(compiled(*given), sampled(*given), strict=True):
            assert torch.equal(compiled_one, plain)


PACKED = torch.tensor([[0, 3]])
REFUSALS = {
    "one rays": (lambda e: render.searchsorted(e, e, PACKED), ts.ArgumentError, "value_rays +None"),
    "no rows": (lambda e: render.searchsorted(e, e), ts.ShapeError, r"should be \[n, k\]"),
    "outside": (lambda e: render.searchsorted(e, e, PACKED + 1, PACKED), ts.ShapeError, "points outside"),
    "other rays": (lambda e: render.searchsorted(e[None], e[None].expand(2, 3)), ts.ShapeError, "values +2 rays"),
    "sizes": (lambda e: render.importance_sampling(e[None], e[None, 1:], 2), ts.ShapeError, r"cdfs +\(1, 2\)"),
    "none": (lambda e: render.importance_sampling(e[None], e[None], 0), ts.ArgumentError, "1 or more"),
    "a list": (lambda e: render.importance_sampling([1.0], e, 2), ts.ArgumentError, "`edges` of `importance_sampling`"),
    "counts": (
        lambda e: render.importance_sampling(e[None], e[None], torch.ones(2)),
        ts.ShapeError,
        r"integers \(1,\)",
    ),
    "dtypes": (lambda e: render.proposal_loss(*[e[None]] * 3, e[None].double()), ts.DtypeError, "proposal_cdfs"),
    "cdfs": (lambda e: render.proposal_loss(e[None], e[None, 1:], e[None], e[None]), ts.ShapeError, r"cdfs +\(1, 2\)"),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_invalid_arguments_are_refused(case):
    call, error, words = case
    with pytest.raises(error, match=words):
        call(torch.rand(3).cumsum(0))
