"""Texts of kernels that have every node of the IR."""

PLAIN = """\
kernel plain
  array x: f32[1]
  array p: f32[1] of 3x3
  array q: f64[0] of 2
  array s: f32[1] of_blocks
  cell total: i64[0]
  argument n: i32
  argument v: f32 of 2x2
  locals f32: a, b, c
  locals i32: at, votes, old
  locals i64: wide
  locals u1: ok
  block_memory s: 64, n * 2
  written a: a, b
  parallel for i, j in 1 .. (x.shape[0] - 1), 0 .. 3 [block_size = 64; may_race]:  @5
    a = -0.0
    barrier  @6
    votes = vote any at
    array near: f32[8]
    exchange x[i] = near[3]  @8
    q[]{1} = 0.5:f64
    p[i]{2, 1} = v{0, 1} * -1e-07
  for k in 0 .. 8 [vector_width = 8]:
    b = a - (b - c) - min(a, inf)
    c = (a + b) * c / (a * b)
    ok = not(ok) and (ok or a < b) and true
    at = at >>> 2 & 7 | 1 << 3
    wide = i64(at) + 3:i64
    at = bits(a, i32)
    a = neg(select(ok, a, 1.0)) + straight_through(a, b)
    a = (at / n):f64
    a = sqrt(n):f64
  while:
    if ok:
      break
    else:
      continue
  if ok:
    pass
  old = atomic max x[0], a
  atomic add total[], wide
  a, b = decompose sym_eig f32 descending of a, b, c, a
  a = random f32
  assert(a < 1.0, 'a "draw"')  @9
"""
SSA = """\
kernel loops
  array y: f32[1]
  locals f32: first, head, then, last, cell
  locals u1: done
  loop j in 0 .. 4 [exit = done; most = 3; has_blocks]:  @3
    carry head = 1.0 then then last last cell cell
    then = head * 2.0
    done = then > 8.0
  loop endlessly [exit = done]:
    done = true
"""
