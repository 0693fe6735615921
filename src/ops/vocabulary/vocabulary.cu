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
    const Operand &x = b[at::x], &weight = b[at::weight], &dx = b[at::dx];
    warpgroups::Maps maps{};
    if (!c.fuse || !has_tile_products() || warpgroups::kBytes > c.shared_limit) return "the GPU lacks the instructions";
    if (tensor::size_of(x.dtype) != 2 || x.rows == 0) return "not 16 bits an element, or there is nothing to do";
    if (x.cols > warpgroups::kMostColumns) return "more than 256 columns";
    if (x.cols % 8 != 0 || !aligned16(x) || !aligned16(weight) || (dx.present() && !aligned16(dx)) || weight.k != x.k ||
        !make_maps(b, maps))
        return "rows do not begin at multiples of 16 bytes";
    return nullptr;
}

/// How warpgroups share their work: one block per multiprocessor.
struct Sharing {
    int parts = 1;             ///< of the streamed tiles
    bool handed_over = false;  ///< blocks get the same number of tiles each and hand over sums where one ends inside of a part
    double time = INFINITY;    ///< in units of a tile
};

/// Of all ways the one that takes the least time, in units of a tile: of the blocks, with two more for beginning and end, and of
/// joining their sums, unless `direct`: a single part needs no joining. Blocks that stay go on to the next owned rows, so that
/// they begin and end once; and they may hand over sums, which costs about as much as a tile.
Sharing warpgroup_sharing(const Context& c, int owned, int members, int streamed, bool direct, bool stay) {
    constexpr int kRows = warpgroups::kRows, kEnds = 2, kRowsJoined = 5000, kHandOver = 1;
    const int counted = c.deterministic ? 1 : members, tiles = (streamed + kRows - 1) / kRows;
    const int blocks = (owned + kRows - 1) / kRows * counted;
    Sharing best;
    for (int parts = 1; parts <= std::min(tiles, kMostParts); ++parts) {
        const int rounds = (blocks * parts + c.multiprocessors - 1) / c.multiprocessors, each = (tiles + parts - 1) / parts;
        const double joining = direct && parts == 1 ? 0 : 1.0 * parts * owned * counted / kRowsJoined,
                     time = (stay ? rounds * each + kEnds : 1.0 * rounds * (each + kEnds)) + joining;
        if (time < best.time) best = {parts, false, time};
    }
    if (!stay || !direct || c.deterministic || blocks <= c.multiprocessors) return best;
    const double even = std::ceil(1.0 * blocks * tiles / c.multiprocessors) + kEnds + kHandOver;
    return even < best.time ? Sharing{1, true, even} : best;
}

Sharing forward_sharing(const Context& c, const Bound& b) {
    return warpgroup_sharing(c, b[at::x].rows, b[at::x].k, b[at::weight].rows, true, false);
}
Sharing weight_sharing(const Context& c, const Bound& b) {
    const bool aligned = b[at::dweight].present() && aligned16(b[at::dweight]);
    return warpgroup_sharing(c, b[at::weight].rows, b[at::x].k, b[at::x].rows, aligned, true);
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
    Args args{tokens.sums, x,     weight, b[at::bias], b[at::ids], b[at::logsumexp],      dx,
              dweight,     dbias, x.k,    x.rows,      x.cols,     b[at::tally].present()};
    args.add_dx = b.accumulates(at::dx);
    args.add_weight = b.accumulates(at::dweight);
    args.add_bias = b.accumulates(at::dbias);
    const bool wants_weights = dweight.present() || dbias.present(), aligned = dweight.present() && aligned16(dweight);
    const Sharing over_weights = weight_sharing(c, b);
    args.parts = forward_sharing(c, b).parts;
    args.weight_parts = over_weights.parts;
    const bool handed_over = over_weights.handed_over;
    args.blocks = std::min<int>(c.multiprocessors, blocks_for(weight.rows, warpgroups::kRows) * x.k * args.weight_parts);
    args.joined = args.parts == 1;
    args.direct = aligned && args.weight_parts == 1;
    DeviceTable squares;
    if (aligned) {
        args.square_parts = square_parts(args);
        MILLRACE_LET(left, leave_squares(c, dweight, args.square_parts));
        squares = left;
        args.squares = static_cast<float*>(squares);
    }
    const auto members = static_cast<std::size_t>(x.k), rows = static_cast<std::size_t>(x.rows),
               cols = static_cast<std::size_t>(x.cols), vocabulary = static_cast<std::size_t>(weight.rows);
    const std::size_t stats = static_cast<std::size_t>(args.parts) * members * rows;
    const std::size_t parted = static_cast<std::size_t>(args.weight_parts) * members * vocabulary * (cols + 1),
                      blocks = static_cast<std::size_t>(handed_over ? args.blocks : 0);
    const std::size_t sums =
        std::max({dx.present() && !args.joined ? stats * cols : 0, wants_weights && !args.direct ? parted : 0,
                  blocks * static_cast<std::size_t>(warpgroups::handed_over_by(warpgroups::chunks_of(x.cols)))});
    MILLRACE_LET(memory, zero_table(c, stats * sizeof(float4) + sums * sizeof(float)));
    MILLRACE_LET(info, zero_table(c, members * static_cast<std::size_t>(args.padded_rows()) * sizeof(RowInfo)));
    MILLRACE_LET(flags, zero_table(c, members * sizeof(float) + 8 * blocks * sizeof(std::int32_t)));
    args.stats = static_cast<float4*>(memory);
    args.sums = reinterpret_cast<float*>(args.stats + stats);
    args.info = static_cast<RowInfo*>(info);
    args.shares = static_cast<float*>(flags);
    if (handed_over) args.handed_over = static_cast<std::int32_t*>(flags) + members;
    args.sums_tokens = wants_weights;
    MILLRACE_LET(forward, make_forward(c, args, maps, x.dtype));
    KernelPtr backward;
    if (wants_weights) {
        MILLRACE_LET(made, make_weight_gradient(c, args, maps, x.dtype, aligned));
        backward = std::move(made);
    }
    return make_kernel([forward = std::shared_ptr<Kernel>(std::move(forward)),
                        backward = std::shared_ptr<Kernel>(std::move(backward)), memory, info, flags, squares, tokens, args,
                        stream = c.stream] {
        forward->run();
        if (backward) backward->run();
        if (!args.sums_tokens) launch_token_sums(stream, args.members, tokens.sums);
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
    const bool weights = b[at::dweight].present() || b[at::dbias].present();
    return kLaunches +
           tile * ((b[at::dx].present() ? 1 : 0.6) * forward_sharing(c, b).time + (weights ? weight_sharing(c, b).time : 0));
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
