"""The operators that read balls, as GPU kernels; what is between their inputs and outputs never leaves the chip.

Every program looks after one sample (and head, relation or node), so nothing is added up in the order of arrival. Sums
in the backward passes that go over samples are left to PyTorch: a kernel writes each sample's part.
B: samples, L: balls, WIDE: a power of two from L on, R: relations, H: heads, D: channels of a head, DW: D filled up to
a power of two, T: target nodes, P: balls of a matchup that are heard, ROWS: targets that are looked after at once.
"""
# Pointers and numbers on the device have no types that a reader of Python would know.
# ruff: noqa: ANN001, ANN201, ANN202, N803

import triton
import triton.language as tl

_for_any_length = triton.jit(do_not_specialize=["L", "T", "MASKS"])
"""Compiled for every WIDE, not for every length."""
_SLOPE = tl.constexpr(0.2)
_FAR = tl.constexpr(-1e30)


@triton.jit
def _weights(scores, allowed):
    """Softmax over the second axis of what is allowed; 0 everywhere in a row where nothing is."""
    scores = tl.where(allowed, scores, _FAR)
    raised = tl.where(allowed, tl.exp(scores - tl.max(scores, 1)[:, None]), 0.0)
    total = tl.sum(raised, 1)
    return raised / tl.where(total > 0.0, total, 1.0)[:, None], total > 0.0


@triton.jit
def _row_edges(mask, number, own, sample, relation, row, column, inside, L, R: tl.constexpr):
    """Which edges of a relation arrive at some rows, the numbers on them, and each row's own number."""
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
    """Attention of balls to balls by R relations, added up; a program is (sample and head, some rows)."""
    sample, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    row, column, depth = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE), tl.arange(0, DW)
    rows_in = (row < L)[:, None] & (depth < D)[None, :]
    columns_in = (column < L)[:, None] & (depth < D)[None, :]
    inside = (row < L)[:, None] & (column < L)[None, :]
    arrived = tl.zeros((ROWS, DW), tl.float32)
    for relation in range(R):
        offset = sample * L * R * H * D + (relation * H + head) * D + depth[None, :]
        q = tl.load(query + offset + row[:, None] * (R * H * D), mask=rows_in, other=0.0)
        k = tl.load(key + offset + column[:, None] * (R * H * D), mask=columns_in, other=0.0)
        v = tl.load(value + offset + column[:, None] * (R * H * D), mask=columns_in, other=0.0)
        e = tl.load(edge + (relation * H + head) * D + depth, mask=depth < D, other=0.0)
        allowed, numbers, mine = _row_edges(mask, number, own, sample, relation, row, column, inside, L, R)
        along = tl.sum(q.to(tl.float32) * e[None, :], 1)
        scores = (tl.dot(q, tl.trans(k), input_precision=PRECISION) + along[:, None] * numbers) * scale
        weights, heard = _weights(scores, allowed)
        mean = tl.sum(weights * numbers, 1) + tl.where(heard, mine, 0.0)
        arrived += tl.dot(weights.to(v.dtype), v, input_precision=PRECISION) + mean[:, None] * e[None, :]
    place = sample * L * H * D + row[:, None] * (H * D) + head * D + depth[None, :]
    tl.store(out + place, arrived.to(out.dtype.element_ty), mask=rows_in)


@_for_any_length
def gap_backward(
    query, key, value, edge, mask, number, own, gradient, d_query, d_key, d_value, d_edge,
    scale, L, WIDE: tl.constexpr, R: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    DW: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of `gap_forward`; a program is (sample and head, relation) and goes through its rows."""
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
        weights, heard = _weights(scores, allowed)
        to_weights = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        to_weights += tl.sum(g_wide * e[None, :], 1)[:, None] * numbers
        to_scores = weights * (to_weights - tl.sum(weights * to_weights, 1)[:, None]) * scale
        to_along = tl.sum(to_scores * numbers, 1)
        narrow = to_scores.to(k.dtype)
        to_query = tl.dot(narrow, k, input_precision=PRECISION) + to_along[:, None] * e[None, :]
        from_row = offset + row[:, None] * (R * H * D)
        tl.store(d_query + from_row, to_query.to(d_query.dtype.element_ty), mask=rows_in)
        to_key += tl.dot(tl.trans(narrow), q, input_precision=PRECISION)
        to_value += tl.dot(tl.trans(weights.to(k.dtype)), g, input_precision=PRECISION)
        mean = tl.sum(weights * numbers, 1) + tl.where(heard, mine, 0.0)
        to_edge += tl.sum(to_along[:, None] * q_wide + mean[:, None] * g_wide, 0)
    tl.store(d_key + from_column, to_key.to(d_key.dtype.element_ty), mask=columns_in)
    tl.store(d_value + from_column, to_value.to(d_value.dtype.element_ty), mask=columns_in)
    tl.store(d_edge + ((sample * R + relation) * H + head) * D + depth, to_edge, mask=depth < D)


@triton.jit
def _score(spoken, heard, attention):
    """GATv2's score of some edges, and the sums that the slope is applied to."""
    both = spoken + heard
    return tl.sum(tl.where(both > 0.0, both, both * _SLOPE) * attention[None, :], 1), both


@_for_any_length
def node_forward(
    spoken, heard, attention, mask, out,
    L, T, MASKS, WIDE: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DW: tl.constexpr,
):  # fmt: skip
    """GATv2 from balls to single nodes; a program is (sample, node and head). MASKS: of each node, or one for all."""
    sample, node, head = tl.program_id(0).to(tl.int64), tl.program_id(1) // H, tl.program_id(1) % H
    ball, depth = tl.arange(0, WIDE), tl.arange(0, DW)
    inside = (ball < L)[:, None] & (depth < D)[None, :]
    place = (node * H + head) * D + depth
    s = tl.load(spoken + sample * L * T * H * D + ball[:, None] * (T * H * D) + place[None, :], mask=inside, other=0.0)
    h = tl.load(heard + sample * T * H * D + place, mask=depth < D, other=0.0).to(tl.float32)
    a = tl.load(attention + place, mask=depth < D, other=0.0)
    allowed = tl.load(mask + (sample * MASKS + node % MASKS) * L + ball, mask=ball < L, other=0) != 0
    s = s.to(tl.float32)
    scores, _ = _score(s, h[None, :], a)
    weights, _ = _weights(scores[None, :], allowed[None, :])
    arrived = tl.sum(tl.trans(weights) * s, 0)
    tl.store(out + sample * T * H * D + place, arrived.to(out.dtype.element_ty), mask=depth < D)


@_for_any_length
def node_backward(
    spoken, heard, attention, mask, gradient, d_spoken, d_heard, d_attention,
    L, T, MASKS, WIDE: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DW: tl.constexpr,
):  # fmt: skip
    """The gradients of `node_forward`, by the same programs."""
    sample, node, head = tl.program_id(0).to(tl.int64), tl.program_id(1) // H, tl.program_id(1) % H
    ball, depth = tl.arange(0, WIDE), tl.arange(0, DW)
    inside = (ball < L)[:, None] & (depth < D)[None, :]
    place = (node * H + head) * D + depth
    from_ball = sample * L * T * H * D + ball[:, None] * (T * H * D) + place[None, :]
    s = tl.load(spoken + from_ball, mask=inside, other=0.0).to(tl.float32)
    h = tl.load(heard + sample * T * H * D + place, mask=depth < D, other=0.0).to(tl.float32)
    a = tl.load(attention + place, mask=depth < D, other=0.0)
    g = tl.load(gradient + sample * T * H * D + place, mask=depth < D, other=0.0).to(tl.float32)
    allowed = tl.load(mask + (sample * MASKS + node % MASKS) * L + ball, mask=ball < L, other=0) != 0
    scores, both = _score(s, h[None, :], a)
    rows, _ = _weights(scores[None, :], allowed[None, :])
    weights = tl.sum(rows, 0)
    to_weights = tl.sum(s * g[None, :], 1)
    to_scores = weights * (to_weights - tl.sum(weights * to_weights, 0))
    to_both = to_scores[:, None] * a[None, :] * tl.where(both > 0.0, 1.0, _SLOPE)
    to_spoken = weights[:, None] * g[None, :] + to_both
    tl.store(d_spoken + from_ball, to_spoken.to(d_spoken.dtype.element_ty), mask=inside)
    to_attention = tl.sum(to_scores[:, None] * tl.where(both > 0.0, both, both * _SLOPE), 0)
    tl.store(d_heard + sample * T * H * D + place, tl.sum(to_both, 0).to(d_heard.dtype.element_ty), mask=depth < D)
    tl.store(d_attention + sample * T * H * D + place, to_attention, mask=depth < D)


@_for_any_length
def matchup_forward(
    spoken, heard, attention, order, rank, out, level,
    L, H: tl.constexpr, D: tl.constexpr, DW: tl.constexpr, P: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """GATv2 from the last P balls of the same matchup; a program is (sample and head, some places of the order).

    `order`: the balls sorted by matchup; `rank`: how many of its matchup stand before each place; `level`: the
    logarithm of each softmax's denominator, for the backward pass.
    """
    sample, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    place, depth = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, DW)
    here, channel = place < L, head * D + depth
    start, inside = sample * L, (place < L)[:, None] & (depth < D)[None, :]
    mine = tl.load(order + start + place, mask=here, other=0)
    before = tl.load(rank + start + place, mask=here, other=0)
    to = (start + mine)[:, None] * (H * D) + channel[None, :]
    h = tl.load(heard + to, mask=inside, other=0.0).to(tl.float32)
    a = tl.load(attention + channel, mask=depth < D, other=0.0)
    highest, total = tl.full((ROWS,), _FAR, tl.float32), tl.zeros((ROWS,), tl.float32)
    arrived = tl.zeros((ROWS, DW), tl.float32)
    for back in range(1, P + 1):
        speaks = here & (before >= back)
        other = tl.load(order + start + place - back, mask=speaks, other=0)
        come = (start + other)[:, None] * (H * D) + channel[None, :]
        s = tl.load(spoken + come, mask=inside & speaks[:, None], other=0.0).to(tl.float32)
        score, _ = _score(s, h, a)
        highest_now = tl.maximum(highest, tl.where(speaks, score, _FAR))
        raised = tl.where(speaks, tl.exp(score - highest_now), 0.0)
        shrink = tl.exp(highest - highest_now)
        arrived = arrived * shrink[:, None] + raised[:, None] * s
        total, highest = total * shrink + raised, highest_now
    total = tl.where(total > 0.0, total, 1.0)
    tl.store(out + to, (arrived / total[:, None]).to(out.dtype.element_ty), mask=inside)
    tl.store(level + (start + place) * H + head, highest + tl.log(total), mask=here)


@_for_any_length
def matchup_backward(
    spoken, heard, attention, order, rank, out, level, gradient, d_spoken, d_heard, d_attention,
    L, H: tl.constexpr, D: tl.constexpr, DW: tl.constexpr, P: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradients of `matchup_forward`, by the same programs: of every ball as one who hears, and as one heard."""
    sample, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    place, depth = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, DW)
    here, channel = place < L, head * D + depth
    start, inside = sample * L, (place < L)[:, None] & (depth < D)[None, :]
    mine = tl.load(order + start + place, mask=here, other=0)
    before = tl.load(rank + start + place, mask=here, other=0)
    to = (start + mine)[:, None] * (H * D) + channel[None, :]
    h = tl.load(heard + to, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(spoken + to, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gradient + to, mask=inside, other=0.0).to(tl.float32)
    o = tl.load(out + to, mask=inside, other=0.0).to(tl.float32)
    top = tl.load(level + (start + place) * H + head, mask=here, other=0.0)
    a = tl.load(attention + channel, mask=depth < D, other=0.0)
    drop = tl.sum(g * o, 1)
    to_spoken, to_heard = tl.zeros((ROWS, DW), tl.float32), tl.zeros((ROWS, DW), tl.float32)
    to_attention = tl.zeros((DW,), tl.float32)
    for step in range(1, P + 1):
        speaks = here & (before >= step)
        other = tl.load(order + start + place - step, mask=speaks, other=0)
        come = (start + other)[:, None] * (H * D) + channel[None, :]
        theirs = tl.load(spoken + come, mask=inside & speaks[:, None], other=0.0).to(tl.float32)
        score, both = _score(theirs, h, a)
        weight = tl.where(speaks, tl.exp(score - top), 0.0)
        to_score = weight * (tl.sum(g * theirs, 1) - drop)
        to_heard += to_score[:, None] * a[None, :] * tl.where(both > 0.0, 1.0, _SLOPE)
        to_attention += tl.sum(to_score[:, None] * tl.where(both > 0.0, both, both * _SLOPE), 0)
        # And the other way: the ball that stands as many places behind hears this one, if it is of the same matchup.
        behind = place + step
        listens = here & (behind < L)
        listens = listens & (tl.load(rank + start + behind, mask=listens, other=0) >= step)
        other = tl.load(order + start + behind, mask=listens, other=0)
        come = (start + other)[:, None] * (H * D) + channel[None, :]
        there = inside & listens[:, None]
        their_h = tl.load(heard + come, mask=there, other=0.0).to(tl.float32)
        their_g = tl.load(gradient + come, mask=there, other=0.0).to(tl.float32)
        their_o = tl.load(out + come, mask=there, other=0.0).to(tl.float32)
        their_top = tl.load(level + (start + behind) * H + head, mask=listens, other=0.0)
        score, both = _score(s, their_h, a)
        weight = tl.where(listens, tl.exp(score - their_top), 0.0)
        to_score = weight * (tl.sum(their_g * s, 1) - tl.sum(their_g * their_o, 1))
        to_spoken += weight[:, None] * their_g
        to_spoken += to_score[:, None] * a[None, :] * tl.where(both > 0.0, 1.0, _SLOPE)
    tl.store(d_spoken + to, to_spoken.to(d_spoken.dtype.element_ty), mask=inside)
    tl.store(d_heard + to, to_heard.to(d_heard.dtype.element_ty), mask=inside)
    part = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * D + depth
    tl.store(d_attention + part, to_attention, mask=depth < D)
