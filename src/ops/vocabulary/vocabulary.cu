// Which kernels a vocabulary head takes, and their memory. Where logits are not in tiles alone, rows go in chunks of logits that
// are stored.

#include "ops/cuda/forms.h"
#include "ops/cuda/late_sums.h"
#include "ops/cuda/squares.h"
#include "ops/tile/plan.cuh"
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

bool make_maps(const Bound& b, Maps& maps) { return make_map(maps.x, b[at::x]) && make_map(maps.weight, b[at::weight]); }

const char* refuses_tiles(const Context& c, const Bound& b) {
    const Operand &x = b[at::x], &weight = b[at::weight], &dx = b[at::dx], &dweight = b[at::dweight];
    Maps maps{};
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

/// Adds up what the rows have left.
KernelPtr make_sums(Context& c, const Bound& b, const TokenSums& sums) {
    return make_kernel([stream = c.stream, members = b[at::x].k, sums] { launch_token_sums(stream, members, sums); });
}

KernelResult make_tiles(Context& c, const Bound& b) {
    Maps maps{};
    MILLRACE_ASSERT(make_maps(b, maps), "refuses_tiles has made them");
    MILLRACE_LET(tokens, make_tokens(c, b));
    const Operand &x = b[at::x], &weight = b[at::weight], &dx = b[at::dx], &dweight = b[at::dweight], &dbias = b[at::dbias];
    Args args{tokens.sums, x,     weight, b[at::bias], b[at::ids], b[at::losses],         dx,
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
    KernelPtr behind = make_sums(c, b, tokens.sums);
    if (dweight.present()) MILLRACE_SET(behind, make_weight_gradient(c, args, maps, x.dtype));
    return in_order({std::move(forward), std::move(behind)}, sums, info, flags, squares, tokens);
}

/// Rows whose logits are in memory at once: all, unless they take more than a 128th of the device. Chunks that stay in the second
/// cache save 8 bytes a logit and cost more than that, since their products are small: 1.19 instead of 0.97 ms for 16,384 rows of
/// 384 columns and 10,000 words on an H200.
int chunk_rows(const Context& c, const Operand& x, const Operand& weight) {
    constexpr std::int64_t kLeastRows = 64;
    const int members = c.deterministic ? 1 : x.k;  // whose sums of chunks must not depend on the others
    const std::int64_t row_bytes = std::int64_t{members} * weight.rows * static_cast<std::int64_t>(tensor::size_of(x.dtype));
    const std::int64_t most = std::max(kLeastRows, static_cast<std::int64_t>(c.memory_bytes / 128) / row_bytes);
    const std::int64_t chunks = std::max<std::int64_t>(1, (x.rows + most - 1) / most);
    return static_cast<int>((x.rows + chunks - 1) / chunks);
}

Operand rows_of(const Operand& whole, int begin, int count) {
    Operand part = whole;
    part.rows = count;
    part.data =
        static_cast<std::byte*>(whole.data) + begin * whole.stride_row * static_cast<std::int64_t>(tensor::size_of(whole.dtype));
    return part;
}

/// Losses and gradients for all shapes and precisions, through the products of the linear layers. What `found` points to stays
/// valid as long as the kernel lives.
KernelResult make_plain(Context& c, const Bound& b, const TokenSums& found) {
    const Operand &x = b[at::x], &weight = b[at::weight], &dx = b[at::dx], &dweight = b[at::dweight], &dbias = b[at::dbias];
    const std::int64_t row_bytes = std::int64_t{weight.rows} * static_cast<std::int64_t>(tensor::size_of(x.dtype));
    const int most = chunk_rows(c, x, weight);
    MILLRACE_LET(memory, zero_table(c, static_cast<std::size_t>(std::max<std::int64_t>(1, row_bytes * most * x.k))));
    Kernels steps;
    const bool differentiates = dx.present() || dweight.present() || dbias.present();
    int begin = 0;
    do {  // once even without rows: the gradients of the weights become zeros
        const int rows = std::min(most, x.rows - begin);
        const Operand logits{memory.get(), x.dtype, x.k, 1, rows, weight.rows, std::int64_t{most} * weight.rows, 0, weight.rows};
        const Operand part = rows_of(x, begin, rows), gradients = differentiates ? logits : Operand{};
        MILLRACE_SET(steps.emplace_back(), make_product(c, Product::forward, part, weight, logits, false));
        // The sums for the bias come with the losses where a block of these holds whole rows.
        const int parts = dbias.present() ? token_loss_parts(logits, gradients, b[at::bias]) : 0;
        ChunkSums bias_sums{dbias, nullptr, parts, weight.rows, begin > 0 || b.accumulates(at::dbias)};
        if (parts > 0) {
            const std::int64_t floats = std::int64_t{x.k} * parts * weight.rows;
            MILLRACE_LET(table, zero_table(c, sizeof(float) * static_cast<std::size_t>(floats)));
            bias_sums.held = table;
            bias_sums.partial = static_cast<float*>(table);
        }
        auto losses = make_kernel([stream = c.stream, logits, gradients, bias = b[at::bias], ids = b[at::ids],
                                   each = b[at::losses], found, begin, partial = bias_sums.held] {
            launch_token_losses(stream, logits, gradients, bias, ids, each, found, begin, static_cast<float*>(partial));
        });
        MILLRACE_SET(steps.emplace_back(), with_sums(c, std::move(losses), std::span(&bias_sums, parts > 0 ? 1 : 0)));
        if (dx.present())
            MILLRACE_SET(steps.emplace_back(),
                         make_product(c, Product::dgrad, logits, weight, rows_of(dx, begin, rows), b.accumulates(at::dx)));
        if (dweight.present())
            MILLRACE_SET(steps.emplace_back(),
                         make_product(c, Product::wgrad, logits, part, dweight, begin > 0 || b.accumulates(at::dweight)));
        if (dbias.present() && parts == 0)
            MILLRACE_SET(steps.emplace_back(), make_column_sum(c, logits, dbias, begin > 0 || b.accumulates(at::dbias)));
        begin += most;
    } while (begin < x.rows);
    return in_order(std::move(steps), memory);
}

KernelResult make_library(Context& c, const Bound& b) {
    MILLRACE_LET(tokens, make_tokens(c, b));
    MILLRACE_LET(rows, make_plain(c, b, tokens.sums));
    return in_order({std::move(rows), make_sums(c, b, tokens.sums)}, tokens);
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
    {"tiles", one<refuses_tiles>, one<tiles_time>, one<make_tiles>},
    {"library", refuses_nothing, one<library_time>, one<make_library>},
};

}  // namespace

KernelResult make_vocabulary_loss(Context& c, const Bound& b) {
    return make_form(c, "vocabulary_loss", kForms, std::span(&b, 1));
}

}  // namespace millrace::ops::cuda
