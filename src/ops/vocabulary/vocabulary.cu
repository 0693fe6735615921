// Which kernels a vocabulary head takes, and their memory.

#include "ops/cuda/forms.h"
#include "ops/cuda/squares.h"
#include "ops/tile/tensor_map.cuh"
#include "ops/vocabulary/warpgroups.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;
using namespace vocabulary;
namespace at = vocabulary_loss;

/// Whether the driver makes a map of `o`, [K][rows][columns].
bool make_map(CUtensorMap& map, const Operand& o) {
    return tile::has_tensor_map(o) && (o.k == 1 || o.stride_k > 0) && tile::make_tensor_map(map, o, warpgroups::kRows);
}

bool make_maps(const Bound& b, warpgroups::Maps& maps) {
    return make_map(maps.x, b[at::x]) && make_map(maps.weight, b[at::weight]);
}

const char* refuses_tiles(const Context& c, const Bound& b) {
    const Operand &x = b[at::x], &weight = b[at::weight], &dx = b[at::dx], &dweight = b[at::dweight];
    warpgroups::Maps maps{};
    if (!c.fuse || !has_tile_products() || warpgroups::kBytes > c.shared_limit) return "the GPU lacks the instructions";
    if (tensor::size_of(x.dtype) != 2 || x.rows == 0) return "not 16 bits an element, or there is nothing to do";
    if (x.cols > warpgroups::kMostColumns) return "more than 256 columns";
    if (x.cols % 8 != 0 || !aligned16(x) || !aligned16(weight) || (dx.present() && !aligned16(dx)) || weight.k != x.k ||
        !make_maps(b, maps))
        return "rows do not begin at multiples of 16 bytes";
    if (dweight.present() ? !aligned16(dweight) : b[at::dbias].present()) return "dbias without dweight, or dweight not aligned";
    return nullptr;
}

/// How blocks share their work, and how long that takes in units of a tile. Beginning and end of a block count as two.
struct Sharing {
    int blocks = 1;
    double time = INFINITY;
};
constexpr double kEnds = 2;

int tiles_of(int rows) { return (rows + warpgroups::kRows - 1) / warpgroups::kRows; }

/// Blocks of a cluster for the same rows of the batch. Joining their sums costs about as much as one and a half tiles. In pinned
/// runs one member counts, so that others beside it change nothing.
Sharing forward_sharing(const Context& c, const Bound& b) {
    constexpr int kMostParts = 8;
    constexpr double kJoin = 1.5;
    const int tiles = tiles_of(b[at::weight].rows), clusters = tiles_of(b[at::x].rows) * (c.deterministic ? 1 : b[at::x].k);
    Sharing best;
    for (int parts = 1; parts <= std::min(tiles, kMostParts); ++parts) {
        const int active = parts == 1 ? c.multiprocessors : active_clusters(c, parts);
        const double rounds = (clusters + active - 1) / active, each = (tiles + parts - 1) / parts;
        const double time = rounds * (each + kEnds + (parts > 1 ? kJoin : 0));
        if (time < best.time) best = {parts, time};
    }
    return best;
}

/// Blocks for all entries of the vocabulary, which get the same number of tiles each. Handing over sums costs about as much as a
/// tile, for each of the blocks that have parts of the same entries. In pinned runs none are handed over.
Sharing weight_sharing(const Context& c, const Bound& b) {
    constexpr double kHandOver = 1;
    const int tiles = tiles_of(b[at::x].rows), parts = tiles_of(b[at::weight].rows) * b[at::x].k;
    if (c.deterministic) return {parts, (parts + c.multiprocessors - 1) / c.multiprocessors * (tiles + kEnds)};
    const std::int64_t all = std::int64_t{parts} * tiles;
    Sharing best;
    for (int blocks = 1; blocks <= std::min<std::int64_t>(all, c.multiprocessors); ++blocks) {
        const std::int64_t each = (all + blocks - 1) / blocks, links = parts % blocks == 0 ? 0 : (tiles + each - 1) / each;
        const double time = static_cast<double>(each) + kEnds + kHandOver * static_cast<double>(links);
        if (time < best.time) best = {blocks, time};
    }
    return best;
}

/// What the rows leave, and its sums.
struct Tokens {
    DeviceTable found;
    TokenSums sums;
};
base::Result<Tokens> make_tokens(Context& c, const Bound& b) {
    const Operand &x = b[at::x], &ids = b[at::ids], &lengths = b[at::lengths];
    const TokenShape shape{lengths.rows, ids.cols, positions_of(x, lengths), b[at::weight].rows};
    MILLRACE_LET(found, found_table(c, x));
    const TokenSums sums{static_cast<Found*>(found), lengths,     b[at::state], b[at::tally], shape, b.params<TokenLossParams>(),
                         b.accumulates(at::tally),   b[at::total]};
    return Tokens{found, sums};
}

KernelResult make_tiles(Context& c, const Bound& b) {
    warpgroups::Maps maps{};
    MILLRACE_ASSERT(make_maps(b, maps), "refuses_tiles has made them");
    MILLRACE_LET(tokens, make_tokens(c, b));
    const Operand &x = b[at::x], &weight = b[at::weight], &dx = b[at::dx], &dweight = b[at::dweight], &dbias = b[at::dbias];
    Args args{tokens.sums, x,     weight, b[at::bias], b[at::ids], b[at::losses],      dx,
              dweight,     dbias, x.k,    x.rows,      x.cols,     b[at::tally].present()};
    args.add_dx = b.accumulates(at::dx);
    args.add_weight = b.accumulates(at::dweight);
    args.add_bias = b.accumulates(at::dbias);
    const auto members = static_cast<std::size_t>(x.k);
    args.parts = forward_sharing(c, b).blocks;
    args.blocks = weight_sharing(c, b).blocks;
    args.square_parts = 8 * tiles_of(weight.rows);
    DeviceTable squares;
    if (dweight.present()) {
        MILLRACE_LET(left, leave_squares(c, dweight, args.square_parts));
        squares = left;
        args.squares = static_cast<float*>(squares);
    }
    const auto blocks = static_cast<std::size_t>(dweight.present() && !c.deterministic ? args.blocks : 0),
               each = static_cast<std::size_t>(warpgroups::handed_over_by(warpgroups::chunks_of(x.cols)));
    MILLRACE_LET(sums, zero_table(c, std::max<std::size_t>(1, blocks * each) * sizeof(float)));
    MILLRACE_LET(info, zero_table(c, members * static_cast<std::size_t>(args.padded_rows()) * sizeof(RowInfo)));
    MILLRACE_LET(flags, zero_table(c, members * sizeof(float) + 8 * blocks * sizeof(std::int32_t)));
    args.sums = static_cast<float*>(sums);
    args.info = static_cast<RowInfo*>(info);
    args.shares = static_cast<float*>(flags);
    args.handed_over = static_cast<std::int32_t*>(flags) + members;
    MILLRACE_LET(forward, make_forward(c, args, maps, x.dtype));
    KernelPtr backward;
    if (dweight.present()) {
        MILLRACE_LET(made, make_weight_gradient(c, args, maps, x.dtype));
        backward = std::move(made);
    }
    return make_kernel([forward = std::shared_ptr<Kernel>(std::move(forward)),
                        backward = std::shared_ptr<Kernel>(std::move(backward)), sums, info, flags, squares, tokens,
                        members = x.k, stream = c.stream] {
        forward->run();
        if (backward)
            backward->run();
        else
            launch_token_sums(stream, members, tokens.sums);
    });
}

KernelResult make_library(Context& c, const Bound& b) {
    MILLRACE_LET(tokens, make_tokens(c, b));
    MILLRACE_LET(rows, make_plain(c, b, tokens.sums));
    return make_kernel(
        [stream = c.stream, rows = std::shared_ptr<Kernel>(std::move(rows)), members = b[at::x].k, tokens = std::move(tokens)] {
            rows->run();
            launch_token_sums(stream, members, tokens.sums);
        });
}

/// Tiles compute the logits twice and never store them. A tile with one product takes about half as long as one with two.
double tiles_time(const Context& c, const Bound& b) {
    constexpr double kLaunches = 8, kTile = 0.6, kChunk = 0.55;
    const double tile = kTile + kChunk * warpgroups::chunks_of(b[at::x].cols);
    return kLaunches + tile * ((b[at::dx].present() ? 1 : 0.6) * forward_sharing(c, b).time +
                               (b[at::dweight].present() ? weight_sharing(c, b).time : 0));
}

/// The library computes them once. The pass of the losses reads what is stored and, with gradients, writes it again.
double library_time(const Context& c, const Bound& b) {
    constexpr double kPasses = 14;
    const Operand &x = b[at::x], &weight = b[at::weight];
    const Operand logits{nullptr, x.dtype, x.k, 1, x.rows, weight.rows, 0, 0, 0};
    const int gradients = (b[at::dx].present() ? 1 : 0) + (b[at::dweight].present() ? 1 : 0);
    const double bytes =
        (gradients > 0 ? 4.0 : 2.0) * static_cast<double>(logits.count()) * static_cast<double>(tensor::size_of(x.dtype));
    return kPasses + (1 + gradients) * library_product_time(c, logits, x.cols, x.dtype) + bytes / 3.6e6;
}

constexpr Form kForms[] = {
    {"tiles", [](const Context& c, std::span<const Bound> r) { return refuses_tiles(c, r.front()); },
     [](const Context& c, std::span<const Bound> r) { return tiles_time(c, r.front()); },
     [](Context& c, std::span<const Bound> r) { return make_tiles(c, r.front()); }},
    {"library", [](const Context&, std::span<const Bound>) -> const char* { return nullptr; },
     [](const Context& c, std::span<const Bound> r) { return library_time(c, r.front()); },
     [](Context& c, std::span<const Bound> r) { return make_library(c, r.front()); }},
};

}  // namespace

KernelResult make_vocabulary_loss(Context& c, const Bound& b) {
    return make_form(c, "vocabulary_loss", kForms, std::span(&b, 1));
}

}  // namespace millrace::ops::cuda
