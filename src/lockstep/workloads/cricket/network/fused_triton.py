"""The operators that read balls, as Triton kernels: scores and weights stay on the chip instead of in memory.

Every program handles one sample (and head, relation or node), so no two programs add to the same number and results do
not depend on their order. Sums over samples in backward passes are left to PyTorch: a kernel writes each sample's part.

B: samples, L: balls, WIDE: the next power of two from L, R: relations, H: heads, D: channels of a head, DW: the next
power of two from D, T: target nodes, P: balls of a matchup that are read, ROWS: targets that are handled at once.
Names: q, k, v, e: query, key, value and edge vector; s, t, a: GATv2's source, target and attention vector; g: incoming
gradient; `to_x`: gradient of x; `d_x`: where it is stored.
"""
# Arguments are pointers and scalars on the device, for which there are no annotations.
# ruff: noqa: ANN001, ANN201, ANN202, N803

import triton
import triton.language as tl

_for_any_length = triton.jit(do_not_specialize=["L", "T", "MASKS"])
"""Compiled once for each WIDE: specialising on these arguments would compile anew for lengths that divide by 16."""
_SLOPE = tl.constexpr(0.2)
"""Negative slope of GATv2's leaky ReLU, as in `operators`."""
_FAR = tl.constexpr(-1e30)
"""Score of what is masked. Not infinity: the difference of two of them must be a number."""


@triton.jit
def _weights(scores, allowed):
    """Softmax over the allowed entries of the second axis, and whether a row has any; rows without any are 0."""
    scores = tl.where(allowed, scores, _FAR)
    raised = tl.where(allowed, tl.exp(scores - tl.max(scores, 1)[:, None]), 0.0)
    total = tl.sum(raised, 1)
    return raised / tl.where(total > 0.0, total, 1.0)[:, None], total > 0.0


@triton.jit
def _row_edges(mask, number, own, sample, relation, row, column, inside, L, R: tl.constexpr):
    """The edges of a relation into some rows: whether they exist, their features, and each row's own feature."""
    place = row[:, None] * L + column[None, :]
    allowed = tl.load(mask + (sample * R + relation) * L * L + place, mask=inside, other=0) != 0
    numbers = tl.load(number + relation * L * L + place, mask=inside, other=0.0)
    mine = tl.load(own + (sample * R + relation) * L + row, mask=row < L, other=0.0)
    return allowed, numbers, mine


@_for_any_length
def gap_forward(
    query, key, value, edge, mask, number, own, out,
    scale, L, WIDE: tl.constexpr, R: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    DW: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The sum of R relations' attention between balls; a program is (sample and head, some rows)."""
    # int64, because offsets into (B, R, L, L) exceed 32 bits for large batches.
    sample, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    row, column, depth = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE), tl.arange(0, DW)
    rows_in = (row < L)[:, None] & (depth < D)[None, :]
    columns_in = (column < L)[:, None] & (depth < D)[None, :]
    inside = (row < L)[:, None] & (column < L)[None, :]
    message = tl.zeros((ROWS, DW), tl.float32)
    for relation in range(R):
        offset = sample * L * R * H * D + (relation * H + head) * D + depth[None, :]
        q = tl.load(query + offset + row[:, None] * (R * H * D), mask=rows_in, other=0.0)
        k = tl.load(key + offset + column[:, None] * (R * H * D), mask=columns_in, other=0.0)
        v = tl.load(value + offset + column[:, None] * (R * H * D), mask=columns_in, other=0.0)
        e = tl.load(edge + (relation * H + head) * D + depth, mask=depth < D, other=0.0)
        allowed, numbers, mine = _row_edges(mask, number, own, sample, relation, row, column, inside, L, R)
        along = tl.sum(q.to(tl.float32) * e[None, :], 1)
        scores = (tl.dot(q, tl.trans(k), input_precision=PRECISION) + along[:, None] * numbers) * scale
        weights, has_edge = _weights(scores, allowed)
        mean = tl.sum(weights * numbers, 1) + tl.where(has_edge, mine, 0.0)
        message += tl.dot(weights.to(v.dtype), v, input_precision=PRECISION) + mean[:, None] * e[None, :]
    place = sample * L * H * D + row[:, None] * (H * D) + head * D + depth[None, :]
    tl.store(out + place, message.to(out.dtype.element_ty), mask=rows_in)


@_for_any_length
def gap_backward(
    query, key, value, edge, mask, number, own, gradient, d_query, d_key, d_value, d_edge,
    scale, L, WIDE: tl.constexpr, R: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    DW: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of `gap_forward`; a program is (sample and head, relation) and loops over all rows.

    Keys and values get contributions from every row, so that one program must see all rows to sum them in order.
    """
    sample, head, relation = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H, tl.program_id(1)
    column, depth = tl.arange(0, WIDE), tl.arange(0, DW)
    columns_in = (column < L)[:, None] & (depth < D)[None, :]
    offset = sample * L * R * H * D + (relation * H + head) * D + depth[None, :]
    from_column = offset + column[:, None] * (R * H * D)
    k = tl.load(key + from_column, mask=columns_in, other=0.0)
    v = tl.load(value + from_column, mask=columns_in, other=0.0)
    e = tl.load(edge + (relation * H + head) * D + depth, mask=depth < D, other=0.0)
    to_key, to_value = tl.zeros((WIDE, DW), tl.float32), tl.zeros((WIDE, DW), tl.float32)
    to_edge = tl.zeros((DW,), tl.float32)
    for first in range(0, L, ROWS):
        row = first + tl.arange(0, ROWS)
        rows_in = (row < L)[:, None] & (depth < D)[None, :]
        inside = (row < L)[:, None] & (column < L)[None, :]
        q = tl.load(query + offset + row[:, None] * (R * H * D), mask=rows_in, other=0.0)
        place = sample * L * H * D + row[:, None] * (H * D) + head * D + depth[None, :]
        g = tl.load(gradient + place, mask=rows_in, other=0.0)
        allowed, numbers, mine = _row_edges(mask, number, own, sample, relation, row, column, inside, L, R)
        q_wide, g_wide = q.to(tl.float32), g.to(tl.float32)
        along = tl.sum(q_wide * e[None, :], 1)
        scores = (tl.dot(q, tl.trans(k), input_precision=PRECISION) + along[:, None] * numbers) * scale
        weights, has_edge = _weights(scores, allowed)
        to_weights = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        to_weights += tl.sum(g_wide * e[None, :], 1)[:, None] * numbers
        # The derivative of softmax.
        to_scores = weights * (to_weights - tl.sum(weights * to_weights, 1)[:, None]) * scale
        to_along = tl.sum(to_scores * numbers, 1)
        narrow = to_scores.to(k.dtype)
        to_query = tl.dot(narrow, k, input_precision=PRECISION) + to_along[:, None] * e[None, :]
        from_row = offset + row[:, None] * (R * H * D)
        tl.store(d_query + from_row, to_query.to(d_query.dtype.element_ty), mask=rows_in)
        to_key += tl.dot(tl.trans(narrow), q, input_precision=PRECISION)
        to_value += tl.dot(tl.trans(weights.to(k.dtype)), g, input_precision=PRECISION)
        mean = tl.sum(weights * numbers, 1) + tl.where(has_edge, mine, 0.0)
        to_edge += tl.sum(to_along[:, None] * q_wide + mean[:, None] * g_wide, 0)
    tl.store(d_key + from_column, to_key.to(d_key.dtype.element_ty), mask=columns_in)
    tl.store(d_value + from_column, to_value.to(d_value.dtype.element_ty), mask=columns_in)
    tl.store(d_edge + ((sample * R + relation) * H + head) * D + depth, to_edge, mask=depth < D)


@triton.jit
def _score(source, target, attention):
    """GATv2's score of some edges, and the sums that the leaky ReLU is applied to."""
    both = source + target
    return tl.sum(tl.where(both > 0.0, both, both * _SLOPE) * attention[None, :], 1), both


@_for_any_length
def node_forward(
    source, target, attention, mask, out,
    L, T, MASKS, WIDE: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DW: tl.constexpr,
):  # fmt: skip
    """GATv2 from balls to single nodes; a program is (sample, node and head). MASKS: T, or 1 mask for all nodes."""
    sample, node, head = tl.program_id(0).to(tl.int64), tl.program_id(1) // H, tl.program_id(1) % H
    ball, depth = tl.arange(0, WIDE), tl.arange(0, DW)
    inside = (ball < L)[:, None] & (depth < D)[None, :]
    place = (node * H + head) * D + depth
    s = tl.load(source + sample * L * T * H * D + ball[:, None] * (T * H * D) + place[None, :], mask=inside, other=0.0)
    t = tl.load(target + sample * T * H * D + place, mask=depth < D, other=0.0).to(tl.float32)
    a = tl.load(attention + place, mask=depth < D, other=0.0)
    allowed = tl.load(mask + (sample * MASKS + node % MASKS) * L + ball, mask=ball < L, other=0) != 0
    s = s.to(tl.float32)
    scores, _ = _score(s, t[None, :], a)
    weights, _ = _weights(scores[None, :], allowed[None, :])
    message = tl.sum(tl.trans(weights) * s, 0)
    tl.store(out + sample * T * H * D + place, message.to(out.dtype.element_ty), mask=depth < D)


@_for_any_length
def node_backward(
    source, target, attention, mask, gradient, d_source, d_target, d_attention,
    L, T, MASKS, WIDE: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DW: tl.constexpr,
):  # fmt: skip
    """The gradients of `node_forward`, by the same programs."""
    sample, node, head = tl.program_id(0).to(tl.int64), tl.program_id(1) // H, tl.program_id(1) % H
    ball, depth = tl.arange(0, WIDE), tl.arange(0, DW)
    inside = (ball < L)[:, None] & (depth < D)[None, :]
    place = (node * H + head) * D + depth
    from_ball = sample * L * T * H * D + ball[:, None] * (T * H * D) + place[None, :]
    s = tl.load(source + from_ball, mask=inside, other=0.0).to(tl.float32)
    t = tl.load(target + sample * T * H * D + place, mask=depth < D, other=0.0).to(tl.float32)
    a = tl.load(attention + place, mask=depth < D, other=0.0)
    g = tl.load(gradient + sample * T * H * D + place, mask=depth < D, other=0.0).to(tl.float32)
    allowed = tl.load(mask + (sample * MASKS + node % MASKS) * L + ball, mask=ball < L, other=0) != 0
    scores, both = _score(s, t[None, :], a)
    rows, _ = _weights(scores[None, :], allowed[None, :])
    weights = tl.sum(rows, 0)
    to_weights = tl.sum(s * g[None, :], 1)
    to_scores = weights * (to_weights - tl.sum(weights * to_weights, 0))
    to_both = to_scores[:, None] * a[None, :] * tl.where(both > 0.0, 1.0, _SLOPE)
    to_source = weights[:, None] * g[None, :] + to_both
    tl.store(d_source + from_ball, to_source.to(d_source.dtype.element_ty), mask=inside)
    to_attention = tl.sum(to_scores[:, None] * tl.where(both > 0.0, both, both * _SLOPE), 0)
    tl.store(d_target + sample * T * H * D + place, tl.sum(to_both, 0).to(d_target.dtype.element_ty), mask=depth < D)
    tl.store(d_attention + sample * T * H * D + place, to_attention, mask=depth < D)


@_for_any_length
def matchup_forward(
    source, target, attention, order, rank, out, level,
    L, H: tl.constexpr, D: tl.constexpr, DW: tl.constexpr, P: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """GATv2 from the last P balls of the same matchup; a program is (sample and head, some positions of the order).

    `order`: the balls sorted by matchup; `rank`: how many of the same matchup precede each position; `level`: the
    logarithm of each softmax's denominator, stored for the backward pass.
    """
    sample, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    place, depth = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, DW)
    here, channel = place < L, head * D + depth
    start, inside = sample * L, (place < L)[:, None] & (depth < D)[None, :]
    mine = tl.load(order + start + place, mask=here, other=0)
    before = tl.load(rank + start + place, mask=here, other=0)
    to = (start + mine)[:, None] * (H * D) + channel[None, :]
    t = tl.load(target + to, mask=inside, other=0.0).to(tl.float32)
    a = tl.load(attention + channel, mask=depth < D, other=0.0)
    highest, total = tl.full((ROWS,), _FAR, tl.float32), tl.zeros((ROWS,), tl.float32)
    message = tl.zeros((ROWS, DW), tl.float32)
    for back in range(1, P + 1):
        reads = here & (before >= back)
        other = tl.load(order + start + place - back, mask=reads, other=0)
        come = (start + other)[:, None] * (H * D) + channel[None, :]
        s = tl.load(source + come, mask=inside & reads[:, None], other=0.0).to(tl.float32)
        score, _ = _score(s, t, a)
        # Online softmax: rescale what was summed so far to the new maximum.
        highest_now = tl.maximum(highest, tl.where(reads, score, _FAR))
        raised = tl.where(reads, tl.exp(score - highest_now), 0.0)
        shrink = tl.exp(highest - highest_now)
        message = message * shrink[:, None] + raised[:, None] * s
        total, highest = total * shrink + raised, highest_now
    total = tl.where(total > 0.0, total, 1.0)
    tl.store(out + to, (message / total[:, None]).to(out.dtype.element_ty), mask=inside)
    tl.store(level + (start + place) * H + head, highest + tl.log(total), mask=here)


@_for_any_length
def matchup_backward(
    source, target, attention, order, rank, out, level, gradient, d_source, d_target, d_attention,
    L, H: tl.constexpr, D: tl.constexpr, DW: tl.constexpr, P: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradients of `matchup_forward`, by the same programs: of every ball as a target and as a source."""
    sample, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    place, depth = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, DW)
    here, channel = place < L, head * D + depth
    start, inside = sample * L, (place < L)[:, None] & (depth < D)[None, :]
    mine = tl.load(order + start + place, mask=here, other=0)
    before = tl.load(rank + start + place, mask=here, other=0)
    to = (start + mine)[:, None] * (H * D) + channel[None, :]
    t = tl.load(target + to, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(source + to, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gradient + to, mask=inside, other=0.0).to(tl.float32)
    o = tl.load(out + to, mask=inside, other=0.0).to(tl.float32)
    top = tl.load(level + (start + place) * H + head, mask=here, other=0.0)
    a = tl.load(attention + channel, mask=depth < D, other=0.0)
    # The sum over a softmax's weights times their gradients, which is the gradient times the output.
    drop = tl.sum(g * o, 1)
    to_source, to_target = tl.zeros((ROWS, DW), tl.float32), tl.zeros((ROWS, DW), tl.float32)
    to_attention = tl.zeros((DW,), tl.float32)
    for step in range(1, P + 1):
        reads = here & (before >= step)
        other = tl.load(order + start + place - step, mask=reads, other=0)
        come = (start + other)[:, None] * (H * D) + channel[None, :]
        theirs = tl.load(source + come, mask=inside & reads[:, None], other=0.0).to(tl.float32)
        score, both = _score(theirs, t, a)
        weight = tl.where(reads, tl.exp(score - top), 0.0)
        to_score = weight * (tl.sum(g * theirs, 1) - drop)
        to_target += to_score[:, None] * a[None, :] * tl.where(both > 0.0, 1.0, _SLOPE)
        to_attention += tl.sum(to_score[:, None] * tl.where(both > 0.0, both, both * _SLOPE), 0)
        # As a source: the ball `step` positions later reads this one if it is of the same matchup. Gathering from the
        # readers instead of scattering to the sources needs no atomics.
        behind = place + step
        is_read = here & (behind < L)
        is_read = is_read & (tl.load(rank + start + behind, mask=is_read, other=0) >= step)
        other = tl.load(order + start + behind, mask=is_read, other=0)
        come = (start + other)[:, None] * (H * D) + channel[None, :]
        there = inside & is_read[:, None]
        their_t = tl.load(target + come, mask=there, other=0.0).to(tl.float32)
        their_g = tl.load(gradient + come, mask=there, other=0.0).to(tl.float32)
        their_o = tl.load(out + come, mask=there, other=0.0).to(tl.float32)
        their_top = tl.load(level + (start + behind) * H + head, mask=is_read, other=0.0)
        score, both = _score(s, their_t, a)
        weight = tl.where(is_read, tl.exp(score - their_top), 0.0)
        to_score = weight * (tl.sum(their_g * s, 1) - tl.sum(their_g * their_o, 1))
        to_source += weight[:, None] * their_g
        to_source += to_score[:, None] * a[None, :] * tl.where(both > 0.0, 1.0, _SLOPE)
    tl.store(d_source + to, to_source.to(d_source.dtype.element_ty), mask=inside)
    tl.store(d_target + to, to_target.to(d_target.dtype.element_ty), mask=inside)
    part = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * D + depth
    tl.store(d_attention + part, to_attention, mask=depth < D)
