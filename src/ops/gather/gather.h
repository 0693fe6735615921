#pragma once
// The rows of a micro-batch, taken from resident data in the order of the pass. Conventions: ops/op.h.

#include "base/philox.h"
#include "ops/op.h"

namespace millrace::ops {

// clang-format off

/// gather_images. Row b of member m takes sample number q = first_row + b of the pass, where first_row is state.position
/// (training) or state.eval_position: index = subset[order(q)], order(q) = base::shuffled_index(state.seed, state.epoch, q, samples) when `shuffle`, else q.
/// q >= samples leaves the row undefined (programs never ask for it). Byte p is of channel c = p % channels: x = (image[index][p] / 255 - mean[c]) / std[c],
/// optionally after the affine augmentation below. labels copied to y. Slots: images u8 [1,1,N,P], labels i32 [1,1,N,1], subset i32
/// [1,1,samples,1] (absent with a window), state, x real [K,1,B,P] (row stride free), y i32 [K,1,B,1]. Labels and y are both there or both absent.
/// window > 0: the tables hold two windows of the pass, of `window` rows each (data/stream): index = window_row(p, state, q).
/// Augmentation (height x width x channels = P): one composed affine, nearest neighbour, zero fill outside, drawn per sample from
/// random_bits(seed, step, micro, op_number, b * 8 + j) with U(+-r) = (2 uniform01 - 1) * r: j=0 angle U(+-rotate degrees), j=1 dx,
/// j=2 dy: whole pixels, floor(U(+-shift) * width or height + 0.5), j=3 scale 1 + U(+-scale), j=4 flip if uniform01 < flip. Output pixel column u,
/// row v, centre c = ((width, height) - 1) / 2: if flipped u' = width-1-u else u; then with (a, b) = ((u',v) - c - (dx,dy)) / scale the source is column
/// cos(angle) a + sin(angle) b + c, row cos(angle) b - sin(angle) a + c, each rounded by floor(p + 0.5); outside the image the pixel is 0.
constexpr int kMostChannels = 4;
struct GatherImagesParams {
    std::uint32_t samples = 0, op_number = 0;
    bool shuffle = true, training = true, augment = false;
    float mean[kMostChannels] = {}, std[kMostChannels] = {1, 1, 1, 1};
    std::uint32_t height = 28, width = 28, channels = 1;
    float rotate = 0, shift = 0, scale = 0, flip = 0;
    std::uint32_t window = 0;
};
namespace gather_images { enum Slot { images, labels, subset, state, x, y, slots }; extern const OpDef kDef; }

/// gather_rows. Rows of a table in the order of gather_images: row b of member m is table[index] with the same q, first_row, order and
/// index; q >= samples leaves the row undefined. Records with equal parameters over several tables give rows that belong together.
/// Slots: table stat [1,1,N,D], subset i32 [1,1,samples,1], state, out real or stat [K,1,B,D] (row stride free); or table and out both i32.
/// window > 0: as in gather_images.
struct GatherRowsParams { std::uint32_t samples = 0; bool shuffle = true, training = true; std::uint32_t window = 0; };
namespace gather_rows { enum Slot { table, subset, state, out, slots }; extern const OpDef kDef; }

/// gather_features. Rows of stored features in the order of gather_images: x[d] = (table[index][d] - mean[d]) * inverse[d]; y = labels[index /
/// rows_per_label]. mask > 0: a run of columns becomes 0, which is the mean: w = min(D, floor(u(0) * (mask + 1))) columns from floor(u(1) * (D - w + 1)) on,
/// with u(j) = uniform01(random_bits(seed, step, micro, op_number, b * 2 + j)). Slots: table f16 [1,1,N,D], labels i32 [1,1,L,1], mean and inverse stat
/// [1,1,1,D], subset i32 [1,1,samples,1] (absent with a window), state, x real [K,1,B,D] (row stride free), y i32 [K,1,B,1].
/// window > 0: as in gather_images.
struct GatherFeaturesParams {
    std::uint32_t samples = 0, op_number = 0, rows_per_label = 1, mask = 0;
    bool shuffle = true, training = true;
    std::uint32_t window = 0;
};
namespace gather_features { enum Slot { table, labels, mean, inverse, subset, state, x, y, slots }; extern const OpDef kDef; }

/// gather_windows. Windows of the ranges of a stream of N tokens: row b of member m is sample number q of the pass, with q as in gather_images. In training a
/// range is read for `epochs` epochs, the last one for all that follow: d = min(state.epoch / epochs, D - 1) and window i = shuffled_index(state.seed, state.epoch, q,
/// ranges[d].windows); samples <= windows of every range. Evaluation reads all: d is the last range with first_window <= q, i = q - first_window. The window begins at
/// token first = i * T + shift of its range, where shift = window_shift(state.seed, state.epoch, T) in training and else 0: out[c] = stream[ranges[d].first + first + c]
/// for c in [0, T], 0 behind the range's end; lengths = min(T, tokens - 1 - first), the number of targets out[1 .. T] that exist. q >= samples leaves the row
/// undefined. Slots: stream i32 [1,1,N,1], ranges i32 [1,1,D,4] (TokenRange), state, out i32 [K,1,B,T+1] (row stride free), lengths i32 [K,1,B,1].
struct GatherWindowsParams { std::uint32_t samples = 0; bool training = true; std::uint32_t epochs = 1; };
namespace gather_windows { enum Slot { stream, ranges, state, out, lengths, slots }; extern const OpDef kDef; }

// clang-format on

/// Where sample number q of the pass lies in a table of two windows. Window number n of the run (of the pass in evaluation) is
/// half n % 2; a member draws its own order inside it when `shuffle`.
template <class Params>
MILLRACE_HD constexpr std::uint32_t window_row(const Params& p, std::uint64_t seed, std::uint32_t epoch, std::uint32_t q) {
    const std::uint32_t windows = (p.samples + p.window - 1) / p.window, at = q / p.window, first = at * p.window;
    const std::uint32_t number = p.training ? epoch * windows + at : at,
                        rows = p.samples - first < p.window ? p.samples - first : p.window;
    return number % 2 * p.window + (p.shuffle ? base::shuffled_index(seed, number, q - first, rows) : q - first);
}

/// Where the first window of a member's epoch begins: in [0, length). The words are those behind base::make_shuffle's.
MILLRACE_HD constexpr std::uint32_t window_shift(std::uint64_t seed, std::uint32_t epoch, std::uint32_t length) {
    return base::random_bits(seed, 0x73687566u, 0x666c6531u, epoch, 8) % length;
}

/// A row of gather_windows' ranges: tokens [first, first + tokens) of the stream. In a pass over all ranges its first window is
/// number `first_window`; an epoch of training draws from `windows`.
struct TokenRange {
    std::int32_t first = 0, tokens = 0, first_window = 0, windows = 0;
};
constexpr int kTokenRangeColumns = 4;

/// Tokens [first, first + count) of the stream: a window of gather_windows without what lies behind the end of its range.
struct TokenWindow {
    std::int64_t first;
    std::int32_t count;  ///< at most length + 1
};
/// Sample number q of the pass; `ranges` has `count` rows.
MILLRACE_HD constexpr TokenWindow token_window(const GatherWindowsParams& p, std::uint64_t seed, std::uint32_t epoch,
                                               std::uint32_t q, std::int32_t length, const TokenRange* ranges,
                                               std::int32_t count) {
    const auto last = static_cast<std::uint32_t>(count - 1);
    std::uint32_t d = 0, window = 0, shift = 0;
    if (p.training)
        d = epoch / p.epochs < last ? epoch / p.epochs : last;
    else
        while (d < last && static_cast<std::uint32_t>(ranges[d + 1].first_window) <= q) ++d;
    const TokenRange range = ranges[d];  // all of it at once: what follows takes long
    if (p.training) {
        window = base::shuffled_index(seed, epoch, q, static_cast<std::uint32_t>(range.windows));
        shift = window_shift(seed, epoch, static_cast<std::uint32_t>(length));
    } else {
        window = q - static_cast<std::uint32_t>(range.first_window);
    }
    const std::int64_t first = static_cast<std::int64_t>(window) * length + shift, left = range.tokens - first;
    return {range.first + first, static_cast<std::int32_t>(left < 0 ? 0 : left > length ? length + 1 : left)};
}

}  // namespace millrace::ops
