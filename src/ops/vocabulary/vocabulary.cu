// Which kernels a vocabulary head takes, and their memory.

#include "ops/vocabulary/warpgroups.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;
using namespace vocabulary;
namespace at = vocabulary_loss;

constexpr int kMostColumns = 256, kBlocksPerMultiprocessor = 2;

bool takes_tiles(const Context& c, const Bound& b) {
    const Operand &x = b[at::x], &dx = b[at::dx];
    const std::size_t bytes = with_width(x.cols, [&]<int kWidth>() { return Layout<kWidth>::kBytes; });
    return c.fuse && x.dtype == tensor::DType::bf16 && x.rows > 0 && x.cols > 0 && x.cols % 8 == 0 && x.cols <= kMostColumns &&
           aligned16(x) && aligned16(b[at::weight]) && (!dx.present() || aligned16(dx)) && bytes <= c.shared_limit;
}

bool takes_warpgroups(const Context& c, const Bound& b) {
    const int cols = b[at::x].cols;
    return c.warpgroups && has_tile_products() && cols > warpgroups::kWidth / 2 && cols <= warpgroups::kWidth &&
           warpgroups::kBytes <= c.shared_limit;
}

/// Into how many parts the streamed tiles are split, for warpgroups: one block per multiprocessor. Of all numbers of parts the
/// one that takes the least time, in units of a tile: of the blocks, each with two more for its beginning and end, and of joining
/// their sums, unless `direct`: a single part needs no joining.
int warpgroup_parts(const Context& c, int owned, int members, int streamed, bool direct) {
    constexpr int kRows = warpgroups::kRows, kEnds = 2, kRowsJoined = 5000;
    const int counted = c.deterministic ? 1 : members, tiles = (streamed + kRows - 1) / kRows;
    const int blocks = (owned + kRows - 1) / kRows * counted;
    int best = 1;
    double least = INFINITY;
    for (int parts = 1; parts <= std::min(tiles, kMostParts); ++parts) {
        const int rounds = (blocks * parts + c.multiprocessors - 1) / c.multiprocessors;
        const double joining = direct && parts == 1 ? 0 : 1.0 * parts * owned * counted / kRowsJoined,
                     time = 1.0 * rounds * ((tiles + parts - 1) / parts + kEnds) + joining;
        if (time < least) {
            least = time;
            best = parts;
        }
    }
    return best;
}

/// Into how many parts the streamed tiles are split so that `blocks` of owned rows fill the device.
int parts_for(const Context& c, int owned, int per_block, int members, int streamed) {
    const int blocks = (owned + per_block - 1) / per_block * (c.deterministic ? 1 : members);
    const int tiles = (streamed + kTile - 1) / kTile;
    return std::clamp(kBlocksPerMultiprocessor * c.multiprocessors / blocks, 1, std::min(tiles, kMostParts));
}

KernelResult make_tiles(Context& c, const Bound& b, const TokenShape& shape, const DeviceTable& found) {
    const Operand &x = b[at::x], &weight = b[at::weight], &dx = b[at::dx], &dweight = b[at::dweight], &dbias = b[at::dbias];
    Args args;
    args.x = x;
    args.weight = weight;
    args.bias = b[at::bias];
    args.ids = b[at::ids];
    args.lengths = b[at::lengths];
    args.shape = shape;
    args.params = b.params<TokenLossParams>();
    args.members = x.k;
    args.rows = x.rows;
    args.cols = x.cols;
    args.exact = b[at::tally].present();
    args.found = static_cast<Found*>(found);
    const int owned = with_width(x.cols, [&]<int kWidth>() { return Layout<kWidth>::kOwned; });
    args.warpgroups = takes_warpgroups(c, b);
    const auto parts = [&](int rows, int streamed, bool direct) {
        return args.warpgroups ? warpgroup_parts(c, rows, x.k, streamed, direct) : parts_for(c, rows, owned, x.k, streamed);
    };
    const bool wants_weights = dweight.present() || dbias.present(), aligned = dweight.present() && aligned16(dweight);
    args.parts = parts(x.rows, weight.rows, false);
    args.weight_parts = parts(weight.rows, x.rows, aligned);
    args.dweight = dweight;
    args.dbias = dbias;
    args.add_weight = b.accumulates(at::dweight);
    args.add_bias = b.accumulates(at::dbias);
    args.direct = aligned && args.weight_parts == 1;
    const auto members = static_cast<std::size_t>(x.k), rows = static_cast<std::size_t>(x.rows),
               cols = static_cast<std::size_t>(x.cols), vocabulary = static_cast<std::size_t>(weight.rows);
    const std::size_t stats = static_cast<std::size_t>(args.parts) * members * rows;
    const std::size_t sums = std::max(
        dx.present() ? stats * cols : 0,
        wants_weights && !args.direct ? static_cast<std::size_t>(args.weight_parts) * members * vocabulary * (cols + 1) : 0);
    MILLRACE_LET(memory, zero_table(c, stats * sizeof(float4) + sums * sizeof(float)));
    MILLRACE_LET(info, zero_table(c, members * static_cast<std::size_t>(args.padded_rows()) * sizeof(RowInfo)));
    args.stats = static_cast<float4*>(memory);
    args.sums = reinterpret_cast<float*>(args.stats + stats);
    args.info = static_cast<RowInfo*>(info);
    MILLRACE_LET(forward, make_forward(c, args, b[at::logsumexp], dx, b.accumulates(at::dx)));
    KernelPtr backward;
    if (wants_weights) {
        MILLRACE_LET(made, make_weight_gradient(c, args, aligned));
        backward = std::move(made);
    }
    return make_kernel([forward = std::shared_ptr<Kernel>(std::move(forward)),
                        backward = std::shared_ptr<Kernel>(std::move(backward)), memory, info] {
        forward->run();
        if (backward) backward->run();
    });
}

}  // namespace

KernelResult make_vocabulary_loss(Context& c, const Bound& b) {
    const Operand &x = b[at::x], &ids = b[at::ids], &lengths = b[at::lengths];
    const auto& params = b.params<TokenLossParams>();
    const TokenShape shape{lengths.rows, ids.cols, positions_of(x, lengths), b[at::weight].rows};
    MILLRACE_TRY(check_positions(x, lengths, params.first + ids.cols));
    if (shape.vocabulary < 1) return base::Error{"the vocabulary is empty"};
    MILLRACE_LET(found, zero_table(c, std::max<std::size_t>(
                                          1, sizeof(Found) * static_cast<std::size_t>(x.k) * static_cast<std::size_t>(x.rows))));
    MILLRACE_LET(rows, takes_tiles(c, b) ? make_tiles(c, b, shape, found) : make_plain(c, b, shape, found));
    return make_kernel([stream = c.stream, rows = std::shared_ptr<Kernel>(std::move(rows)), found, members = x.k, lengths,
                        state = b[at::state], tally = b[at::tally], shape, params, add = b.accumulates(at::tally)] {
        rows->run();
        launch_token_sums(stream, members, static_cast<const Found*>(found), lengths, state, tally, shape, params, add);
    });
}

}  // namespace millrace::ops::cuda
