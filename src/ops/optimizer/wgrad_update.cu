// Weight gradients, norm and update of a step in which nothing else reads the gradients: large ones are not stored. Their sums of
// squares come from the inner products of the batch's rows (dense/gram_squares.cu), and each tile is computed where it is applied
// (tile_update.cu). That is 26 bytes a parameter instead of 38. Small gradients are stored and read as usual.

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "ops/cuda/late_sums.h"
#include "ops/dense/forms.h"
#include "ops/optimizer/update.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kSmallestTile = 16;  ///< rows: each tile reads all of x, 16 bytes a parameter of the L2 cache

/// Whether the arenas of an update can be indexed as one, element i of member k at k times the stride, in 32 bits, and all
/// elements have a 16-bit copy.
bool share_places(const Bound& update) {
    using namespace optimizer;
    const Operand& p = update[params];
    const auto agrees = [&](const Operand& o) { return !o.present() || o.stride_k == p.stride_k; };
    return update[copy16].present() && update.params<OptimizerParams>().first_copied == 0 && agrees(update[grads]) &&
           agrees(update[m]) && agrees(update[v]) && agrees(update[copy16]) &&
           std::int64_t{p.k} * p.stride_k < std::int64_t{1} << 31;
}

bool stays_inside(const Context& c, const Bound& wgrad, const Bound& update) {
    const Operand& dw = wgrad[linear_wgrad::dw];
    return takes_gram_squares(c, wgrad) && !wgrad[linear_wgrad::dbias].present() &&
           wgrad[linear_wgrad::x].dtype == update[optimizer::copy16].dtype && leaves_squares(c, dw) && dw.cols % 4 == 0 &&
           place_in(dw, update[optimizer::grads]) >= 0;
}

std::size_t count_wgrads(std::span<const Bound> records) {
    const auto behind = std::ranges::find_if(records, [](const Bound& b) { return b.record->op != &linear_wgrad::kDef; });
    return static_cast<std::size_t>(behind - records.begin());
}

/// A gradient that stays inside: where it lies in a member of the arena, and its group.
struct Inside {
    Bound wgrad;
    std::int64_t begin, end;
    std::int32_t group;
};

/// Parts of a row: of about equal width, beginning at multiples of 32 (128 bytes).
int column_parts(const Operand& dw) { return static_cast<int>(blocks_for(dw.cols, kUpdateInputs)); }
int column_of(const Operand& dw, int part) {
    static_assert(kUpdateInputs % 32 == 0);
    return std::min(dw.cols, static_cast<int>(blocks_for(dw.cols, 32)) * part / column_parts(dw) * 32);
}
/// How many tiles of at most `rows` rows a gradient has.
std::int64_t count_tiles(const Operand& dw, int rows) {
    return std::int64_t{dw.k} * dw.g * blocks_for(dw.rows, rows) * column_parts(dw);
}

/// Rows of a tile: such that the busiest of `blocks` blocks has the fewest.
int rows_of_tiles(const std::vector<Inside>& inside, int blocks) {
    int best = kSmallestTile;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (int rows = kUpdateOutputs; rows >= kSmallestTile; rows -= 8) {  // 16 bytes of dz
        std::int64_t tiles = 0;
        for (const Inside& in : inside) tiles += count_tiles(in.wgrad[linear_wgrad::dw], rows);
        const std::int64_t of_block = blocks_for(tiles, blocks) * std::int64_t{rows};
        if (of_block < least) best = rows;
        least = std::min(least, of_block);
    }
    return best;
}

void append_tiles(const Inside& in, int k, int tile_rows, std::int64_t stride_k, std::vector<UpdateTile>& tiles) {
    using namespace linear_wgrad;
    const Operand &oz = in.wgrad[dz], &ox = in.wgrad[x], &ow = in.wgrad[dw];
    for (int g = 0; g < ow.g; ++g)
        for (int row = 0; row < ow.rows; row += tile_rows)
            for (int part = 0; part < column_parts(ow); ++part) {
                const int col = column_of(ow, part);
                UpdateTile t{};
                t.dz = oz.at<const std::uint16_t>(k, g) + row;
                t.x = ox.at<const std::uint16_t>(k, g) + col;
                t.ld_dz = static_cast<std::int32_t>(oz.stride_row);
                t.ld_x = static_cast<std::int32_t>(ox.stride_row);
                t.rows = oz.rows;
                t.outputs = std::min(tile_rows, ow.rows - row);
                t.inputs = column_of(ow, part + 1) - col;
                t.at = static_cast<std::uint32_t>(k * stride_k + in.begin + (g * std::int64_t{ow.rows} + row) * ow.cols + col);
                t.count = t.outputs * t.inputs;
                t.gap = ow.cols - t.inputs;
                t.member = k;
                t.group = in.group;
                tiles.push_back(t);
            }
}

/// What `inside`, in ascending order, leaves of member k as tiles of one group each.
void append_stored(const std::vector<Inside>& inside, const std::vector<Segment>& segments, const Operand& grads, int k,
                   std::vector<UpdateTile>& tiles) {
    std::int64_t at = 0;
    auto segment = segments.begin();
    const auto until = [&](std::int64_t end) {
        while (at < end) {
            while (segment->end <= at) ++segment;
            const std::int64_t stop = std::min({end, std::int64_t{segment->end}, at + kUpdateStored});
            UpdateTile t{};
            t.stored = grads.at<const float>(k) + at;
            t.count = static_cast<std::int32_t>(stop - at);
            t.at = static_cast<std::uint32_t>(k * grads.stride_k + at);
            t.member = k;
            t.group = segment->group;
            tiles.push_back(t);
            at = stop;
        }
    };
    for (const Inside& in : inside) {
        until(in.begin);
        at = in.end;
    }
    until(grads.cols);
}

/// The table of tiles: round after round, one for each block. Each goes to the least loaded block, in the order given, and
/// blocks with fewer of them get empty ones.
std::vector<UpdateTile> balance_tiles(const std::vector<UpdateTile>& tiles, int blocks, const float* stored) {
    using Load = std::pair<std::int64_t, int>;  // elements, block
    std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
    for (int b = 0; b < blocks; ++b) loads.emplace(0, b);
    UpdateTile none{};
    none.stored = stored;
    std::vector<std::size_t> rounds(static_cast<std::size_t>(blocks));
    std::vector<UpdateTile> table;
    for (const UpdateTile& t : tiles) {
        const auto [load, block] = loads.top();
        loads.pop();
        loads.emplace(load + t.count, block);
        const std::size_t row = rounds[static_cast<std::size_t>(block)]++ * static_cast<std::size_t>(blocks);
        if (row == table.size()) table.resize(row + static_cast<std::size_t>(blocks), none);
        table[row + static_cast<std::size_t>(block)] = t;
    }
    return table;
}

}  // namespace

Match match_wgrad_update(const Context& c, const Window& records) {
    const std::size_t wgrads = match_grouped_wgrad(c, records).count();
    if (wgrads == 0 || c.deterministic || records[0].condition.present()) return {};
    const std::size_t closing = wgrads < records.size() ? match_fused_update(c, records.from(wgrads)).count() : 0;
    if (closing == 0) return {};
    const Bound& update = records[wgrads + closing - 2];
    if (!share_places(update)) return {};
    // Only a gradient that begins here can stay inside.
    if (std::ranges::any_of(records.first(wgrads), [](const Bound& b) { return b.accumulates(linear_wgrad::dw); })) return {};
    std::int64_t tiles = 0;
    for (const Bound& b : records.first(wgrads))
        if (const Operand& dw = b[linear_wgrad::dw]; stays_inside(c, b, update)) tiles += count_tiles(dw, kSmallestTile);
    // Four rounds of all blocks: a last round that is all but empty then costs less than the third of the bytes that is saved.
    const int blocks = tile_update_blocks(c);
    if (blocks == 0 || tiles < 4 * blocks) return {};
    Match match = Match::first(wgrads + closing);
    for (std::size_t i = 0; i < wgrads; ++i) match.unwritten.push_back({i, linear_wgrad::dw});
    return match;
}

KernelResult make_wgrad_update(Context& c, std::span<const Bound> records) {
    const auto wgrads = records.first(count_wgrads(records)), closing = records.subspan(wgrads.size()), last = records.last(3);
    const Bound &norm = last[0], &update = last[1];
    const Operand& arena = update[optimizer::grads];
    MILLRACE_LET(segments, read_segments(c, update[optimizer::segments]));
    std::vector<Inside> inside;
    std::vector<Bound> taken, stored;
    for (const Bound& b : wgrads) {
        const Operand& dw = b[linear_wgrad::dw];
        const std::int64_t begin = place_in(dw, arena), end = begin + dw.count() / dw.k;
        const auto segment = std::ranges::find_if(segments, [&](const Segment& s) { return begin < s.end; });
        if (segment == segments.end() || end > segment->end || !stays_inside(c, b, update)) {
            stored.push_back(b);
            continue;
        }
        taken.push_back(b);
        inside.push_back({b, begin, end, segment->group});
    }
    Kernels parts;
    if (!taken.empty()) MILLRACE_SET(parts.emplace_back(), make_gram_squares(c, taken));
    if (!stored.empty()) MILLRACE_SET(parts.emplace_back(), make_grouped_wgrad(c, stored));
    MILLRACE_LET(sums, take_late_sums(c));  // the norm below reads them
    if (sums) parts.emplace_back(std::move(sums));
    if (taken.empty()) {
        MILLRACE_SET(parts.emplace_back(), make_fused_update(c, closing));
    } else {
        MILLRACE_SET(parts.emplace_back(), make_norm_slices(c, norm));
        DeviceTable blocks_done;
        MILLRACE_LET(args, closing_args(c, closing, blocks_done));
        std::vector<UpdateTile> tiles;
        std::ranges::sort(inside, {}, &Inside::begin);
        // A member's operands are read by many tiles, one soon after the other. Stored gradients make all blocks' shares equal.
        const int blocks = tile_update_blocks(c), rows = rows_of_tiles(inside, blocks);
        for (int k = 0; k < arena.k; ++k)
            for (const Inside& in : inside) append_tiles(in, k, rows, arena.stride_k, tiles);
        const auto products = static_cast<std::ptrdiff_t>(tiles.size());
        for (int k = 0; k < arena.k; ++k) append_stored(inside, segments, arena, k, tiles);
        std::stable_sort(tiles.begin() + products, tiles.end(),
                         [](const UpdateTile& a, const UpdateTile& b) { return a.count > b.count; });
        tiles = balance_tiles(tiles, blocks, arena.at<const float>(0));
        MILLRACE_SET(parts.emplace_back(), make_tile_update(c, args, tiles, blocks_done));
    }
    return in_order(std::move(parts));
}

}  // namespace millrace::ops::cuda
