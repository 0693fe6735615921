// Which kernels a vocabulary head takes, and their memory.

#include "ops/cuda/squares.h"
#include "ops/tile/tensor_map.cuh"
#include "ops/vocabulary/warpgroups.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;
using namespace vocabulary;
namespace at = vocabulary_loss;

constexpr int kMostColumns = 256, kBlocksPerMultiprocessor = 2;

/// Whether the driver makes a map of `o`, [K][1][rows][columns].
bool make_map(CUtensorMap& map, const Operand& o) {
    return tile::has_tensor_map(o) && (o.k == 1 || o.stride_k > 0) && tile::make_tensor_map(map, o, warpgroups::kRows);
}
bool make_maps(const Bound& b, warpgroups::Maps& maps) {
    return make_map(maps.x, b[at::x]) && make_map(maps.weight, b[at::weight]);
}

bool takes_warpgroups(const Context& c, const Bound& b) {
    const Operand& x = b[at::x];
    warpgroups::Maps maps{};
    return c.warpgroups && has_tile_products() && x.cols > warpgroups::kWidth / 2 && x.cols <= warpgroups::kWidth &&
           warpgroups::kBytes <= c.shared_limit && b[at::weight].k == x.k && make_maps(b, maps);
}

/// f16 has no tiles but those of warpgroups.
bool takes_tiles(const Context& c, const Bound& b) {
    const Operand &x = b[at::x], &dx = b[at::dx];
    const std::size_t bytes = with_width(x.cols, [&]<int kWidth>() { return Layout<kWidth>::kBytes; });
    return c.fuse && x.rows > 0 && x.cols > 0 && x.cols % 8 == 0 && x.cols <= kMostColumns && aligned16(x) &&
           aligned16(b[at::weight]) && (!dx.present() || aligned16(dx)) && bytes <= c.shared_limit &&
           (x.dtype == tensor::DType::bf16 || takes_warpgroups(c, b));
}

/// Whether tiles, which compute the logits twice and never store them, beat the library, which computes them once. Of four and of
/// three products, with rates measured on an H200; what is stored moves 12 bytes a logit.
bool beats_library(const Context& c, const Bound& b) {
    constexpr double kWarpRate = 200e6, kWarpgroupRate = 600e6, kLibraryRate = 500e6, kBytes = 4e6, kLaunches = 15;
    const Operand &x = b[at::x], &weight = b[at::weight];
    const double logits = 1.0 * x.k * x.rows * weight.rows, product = 2 * logits * x.cols;
    return 4 * product / (takes_warpgroups(c, b) ? kWarpgroupRate : kWarpRate) <
           3 * product / kLibraryRate + 12 * logits / kBytes + kLaunches;
}

/// How warpgroups share their work: one block per multiprocessor.
struct Sharing {
    int parts = 1;             ///< of the streamed tiles
    bool handed_over = false;  ///< blocks get the same number of tiles each and hand over sums where one ends inside of a part
};

/// Of all ways the one that takes the least time, in units of a tile: of the blocks, with two more for beginning and end, and of
/// joining their sums, unless `direct`: a single part needs no joining. Blocks that stay go on to the next owned rows, so that
/// they begin and end once; and they may hand over sums, which costs about as much as a tile.
Sharing warpgroup_sharing(const Context& c, int owned, int members, int streamed, bool direct, bool stay) {
    constexpr int kRows = warpgroups::kRows, kEnds = 2, kRowsJoined = 5000, kHandOver = 1;
    const int counted = c.deterministic ? 1 : members, tiles = (streamed + kRows - 1) / kRows;
    const int blocks = (owned + kRows - 1) / kRows * counted;
    Sharing best;
    double least = INFINITY;
    for (int parts = 1; parts <= std::min(tiles, kMostParts); ++parts) {
        const int rounds = (blocks * parts + c.multiprocessors - 1) / c.multiprocessors, each = (tiles + parts - 1) / parts;
        const double joining = direct && parts == 1 ? 0 : 1.0 * parts * owned * counted / kRowsJoined,
                     time = (stay ? rounds * each + kEnds : 1.0 * rounds * (each + kEnds)) + joining;
        if (time < least) {
            least = time;
            best.parts = parts;
        }
    }
    if (!stay || !direct || c.deterministic || blocks <= c.multiprocessors) return best;
    const double even = std::ceil(1.0 * blocks * tiles / c.multiprocessors) + kEnds + kHandOver;
    return even < least ? Sharing{1, true} : best;
}

/// Into how many parts the streamed tiles are split so that `blocks` of owned rows fill the device.
int parts_for(const Context& c, int owned, int per_block, int members, int streamed) {
    const int blocks = (owned + per_block - 1) / per_block * (c.deterministic ? 1 : members);
    const int tiles = (streamed + kTile - 1) / kTile;
    return std::clamp(kBlocksPerMultiprocessor * c.multiprocessors / blocks, 1, std::min(tiles, kMostParts));
}

/// `summed`: whether the kernels also add up what they find.
KernelResult make_tiles(Context& c, const Bound& b, const TokenSums& tokens, bool& summed) {
    const Operand &x = b[at::x], &weight = b[at::weight], &dx = b[at::dx], &dweight = b[at::dweight], &dbias = b[at::dbias];
    Args args{tokens,  x,     weight, b[at::bias], b[at::ids], b[at::logsumexp],      dx,
              dweight, dbias, x.k,    x.rows,      x.cols,     b[at::tally].present()};
    args.add_dx = b.accumulates(at::dx);
    args.add_weight = b.accumulates(at::dweight);
    args.add_bias = b.accumulates(at::dbias);
    const int owned = with_width(x.cols, [&]<int kWidth>() { return Layout<kWidth>::kOwned; });
    warpgroups::Maps maps{};
    args.warpgroups = takes_warpgroups(c, b) && make_maps(b, maps);
    args.type = x.dtype;
    const bool wants_weights = dweight.present() || dbias.present(), aligned = dweight.present() && aligned16(dweight);
    bool handed_over = false;
    if (args.warpgroups) {
        const Sharing over_weights = warpgroup_sharing(c, weight.rows, x.k, x.rows, aligned, true);
        args.parts = warpgroup_sharing(c, x.rows, x.k, weight.rows, true, false).parts;
        args.weight_parts = over_weights.parts;
        handed_over = over_weights.handed_over;
    } else {
        args.parts = parts_for(c, x.rows, owned, x.k, weight.rows);
        args.weight_parts = parts_for(c, weight.rows, owned, x.k, x.rows);
    }
    args.blocks = std::min<int>(c.multiprocessors, blocks_for(weight.rows, warpgroups::kRows) * x.k * args.weight_parts);
    args.joined = args.warpgroups && args.parts == 1;
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
    const std::size_t sums = std::max({dx.present() && !args.joined ? stats * cols : 0,
                                       wants_weights && !args.direct ? parted : 0, blocks * warpgroups::kHandedOver});
    MILLRACE_LET(memory, zero_table(c, stats * sizeof(float4) + sums * sizeof(float)));
    MILLRACE_LET(info, zero_table(c, members * static_cast<std::size_t>(args.padded_rows()) * sizeof(RowInfo)));
    MILLRACE_LET(flags, zero_table(c, members * sizeof(float) + 8 * blocks * sizeof(std::int32_t)));
    args.stats = static_cast<float4*>(memory);
    args.sums = reinterpret_cast<float*>(args.stats + stats);
    args.info = static_cast<RowInfo*>(info);
    args.shares = static_cast<float*>(flags);
    if (handed_over) args.handed_over = static_cast<std::int32_t*>(flags) + members;
    summed = args.sums_tokens = handed_over && wants_weights;
    MILLRACE_LET(forward, make_forward(c, args, maps));
    KernelPtr backward;
    if (wants_weights) {
        MILLRACE_LET(made, make_weight_gradient(c, args, maps, aligned));
        backward = std::move(made);
    }
    return make_kernel([forward = std::shared_ptr<Kernel>(std::move(forward)),
                        backward = std::shared_ptr<Kernel>(std::move(backward)), memory, info, flags, squares] {
        forward->run();
        if (backward) backward->run();
    });
}

}  // namespace

KernelResult make_vocabulary_loss(Context& c, const Bound& b) {
    const Operand &x = b[at::x], &ids = b[at::ids], &lengths = b[at::lengths];
    const auto& params = b.params<TokenLossParams>();
    const TokenShape shape{lengths.rows, ids.cols, positions_of(x, lengths), b[at::weight].rows};
    MILLRACE_LET(found, found_table(c, x));
    const TokenSums sums{static_cast<Found*>(found), lengths,     b[at::state], b[at::tally], shape, params,
                         b.accumulates(at::tally),   b[at::total]};
    bool summed = false;
    MILLRACE_LET(rows, takes_tiles(c, b) && (c.deterministic || beats_library(c, b)) ? make_tiles(c, b, sums, summed)
                                                                                     : make_plain(c, b, sums));
    return make_kernel([stream = c.stream, rows = std::shared_ptr<Kernel>(std::move(rows)), found, members = x.k, sums, summed] {
        rows->run();
        if (!summed) launch_token_sums(stream, members, sums);
    });
}

}  // namespace millrace::ops::cuda
