#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/philox.h"
#include "ops/cpu/kernel.h"
#include "ops/gather/gather.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

/// Calls body(member, row, sample) for the rows of `out` that the pass still has samples for.
template <class Params, class Body>
void for_each_sample(Context& context, const Params& p, const Operand& state, const Operand& subset, const Operand& out,
                     Body&& body) noexcept {
    const bool parallel = out.count() >= kParallelElements;
    const Blocks rows(out.rows, 8, parallel ? 2 * context.pool.threads() : 1);
    context.pool.for_each_if(parallel, out.k * rows.count, [&](int task, int) {
        const int member = task / rows.count, part = task % rows.count;
        const MemberState& s = state_of(state, member);
        const base::Shuffle order = base::make_shuffle(s.seed, s.epoch, p.samples);
        for (int row = rows.begin(part); row < rows.end(part); ++row) {
            const std::uint32_t first = p.training ? s.position : s.eval_position;
            const std::uint32_t q = p.rank.position(first + static_cast<std::uint32_t>(row));
            if (q >= p.samples) break;
            if constexpr (requires { p.window; }) {
                if (p.window > 0) {
                    body(member, row, static_cast<std::int32_t>(window_row(p, s.seed, s.epoch, q)));
                    continue;
                }
            }
            const std::uint32_t place = p.shuffle ? base::shuffled_index(order, q) : q;
            body(member, row, subset.present() ? *subset.at<std::int32_t>(0, 0, place) : static_cast<std::int32_t>(place));
        }
    });
}

/// One sample's affine map from an output pixel to the source pixel.
struct Affine {
    float cosine, sine, dx, dy, inverse_scale, centre;
    bool flip;

    Affine(const GatherImagesParams& p, const MemberState& s, std::uint32_t row) {
        const auto unit = [&](std::uint32_t j) {
            return base::uniform01(base::random_bits(s.seed, s.step, s.micro, p.op_number, std::uint64_t{row} * 8 + j));
        };
        const auto spread = [&](std::uint32_t j, float range) { return (2 * unit(j) - 1) * range; };
        const float angle = spread(0, p.rotate) * std::numbers::pi_v<float> / 180;
        cosine = std::cos(angle);
        sine = std::sin(angle);
        dx = std::floor(spread(1, p.shift) * static_cast<float>(p.side) + 0.5f);
        dy = std::floor(spread(2, p.shift) * static_cast<float>(p.side) + 0.5f);
        inverse_scale = 1 / (1 + spread(3, p.scale));
        flip = unit(4) < p.flip;
        centre = static_cast<float>(p.side - 1) / 2;
    }

    void apply(const std::uint8_t* image, int side, float scale, float shift, float* out) const {
        for (int v = 0; v < side; ++v) {
            const float b = (static_cast<float>(v) - centre - dy) * inverse_scale;
            for (int u = 0; u < side; ++u) {
                const float a = (static_cast<float>(flip ? side - 1 - u : u) - centre - dx) * inverse_scale;
                const float column = std::floor(cosine * a + sine * b + centre + 0.5f),
                            row = std::floor(cosine * b - sine * a + centre + 0.5f);
                const auto limit = static_cast<float>(side);
                const bool inside = column >= 0 && column < limit && row >= 0 && row < limit;
                const float pixel =
                    inside ? static_cast<float>(image[static_cast<int>(row) * side + static_cast<int>(column)]) : 0.0f;
                out[v * side + u] = pixel * scale + shift;
            }
        }
    }
};

void gather_image(const Context& context, const Bound& b, const GatherImagesParams& p, int member, int row,
                  std::int32_t sample) noexcept {
    using namespace gather_images;
    const std::uint8_t* image = b[images].at<std::uint8_t>(0, 0, sample);
    float* out = b[x].at<float>(member, 0, row);
    const auto scale = static_cast<float>(1.0 / (255.0 * static_cast<double>(p.std)));
    const auto shift = static_cast<float>(-static_cast<double>(p.mean) / static_cast<double>(p.std));
    if (p.augment) {
        const Affine affine(p, state_of(b[state], member), static_cast<std::uint32_t>(row));
        affine.apply(image, static_cast<int>(p.side), scale, shift, out);
    } else {
        context.simd.pixels(b[x].cols, image, scale, shift, out);
    }
    *b[y].at<std::int32_t>(member, 0, row) = *b[labels].at<std::uint8_t>(0, 0, sample);
}

}  // namespace

KernelResult make_gather_images(Context& context, const Bound& bound) {
    using namespace gather_images;
    const auto p = bound.params<GatherImagesParams>();
    return make_kernel([&context, b = bound, p]() noexcept {
        for_each_sample(context, p, b[state], b[subset], b[x],
                        [&](int member, int row, std::int32_t sample) { gather_image(context, b, p, member, row, sample); });
    });
}

KernelResult make_gather_rows(Context& context, const Bound& bound) {
    using namespace gather_rows;
    const auto p = bound.params<GatherRowsParams>();
    return make_kernel([&context, b = bound, p]() noexcept {
        const Operand& to = b[out];
        for_each_sample(context, p, b[state], b[subset], to, [&](int member, int row, std::int32_t sample) {
            if (to.dtype == DType::i32)
                std::copy_n(b[table].at<std::int32_t>(0, 0, sample), to.cols, to.at<std::int32_t>(member, 0, row));
            else
                std::copy_n(b[table].at<float>(0, 0, sample), to.cols, to.at<float>(member, 0, row));
        });
    });
}

KernelResult make_gather_features(Context& context, const Bound& bound) {
    using namespace gather_features;
    const auto p = bound.params<GatherFeaturesParams>();
    return make_kernel([&context, b = bound, p]() noexcept {
        const int width = b[x].cols;
        for_each_sample(context, p, b[state], b[subset], b[x], [&](int member, int row, std::int32_t sample) {
            const MemberState& s = state_of(b[state], member);
            const std::uint16_t* from = b[table].at<std::uint16_t>(0, 0, sample);
            const float *centre = b[mean].at<float>(0), *scale = b[inverse].at<float>(0);
            float* to = b[x].at<float>(member, 0, row);
            for (int d = 0; d < width; ++d) to[d] = (tensor::from_f16(from[d]) - centre[d]) * scale[d];
            *b[y].at<std::int32_t>(member, 0, row) =
                *b[labels].at<std::int32_t>(0, 0, sample / static_cast<int>(p.rows_per_label));
            if (p.mask == 0) return;
            const auto unit = [&](std::uint32_t j) {
                return base::uniform01(
                    base::random_bits(s.seed, s.step, s.micro, p.op_number, static_cast<std::uint64_t>(row) * 2 + j));
            };
            const int masked = std::min(width, static_cast<int>(unit(0) * static_cast<float>(p.mask + 1)));
            std::fill_n(to + static_cast<int>(unit(1) * static_cast<float>(width - masked + 1)), masked, 0.0f);
        });
    });
}

KernelResult make_gather_windows(Context& context, const Bound& bound) {
    using namespace gather_windows;
    const auto p = bound.params<GatherWindowsParams>();
    return make_kernel([&context, b = bound, p]() noexcept {
        const Operand& to = b[out];
        const auto* table = reinterpret_cast<const TokenRange*>(b[ranges].at<std::int32_t>(0));
        const bool parallel = to.count() >= kParallelElements;
        context.pool.for_each_if(parallel, to.k * to.rows, [&](int task, int) {
            const int member = task / to.rows, row = task % to.rows;
            const MemberState& s = state_of(b[state], member);
            const std::uint32_t q =
                p.rank.position((p.training ? s.position : s.eval_position) + static_cast<std::uint32_t>(row));
            if (q >= p.samples) return;
            const TokenWindow window = token_window(p, s.seed, s.epoch, q, to.cols - 1, table, b[ranges].rows);
            auto* tokens = to.at<std::int32_t>(member, 0, row);
            for (int c = 0; c < window.count; ++c) tokens[c] = *b[stream].at<std::int32_t>(0, 0, window.first + c);
            std::fill(tokens + window.count, tokens + to.cols, 0);
            *b[lengths].at<std::int32_t>(member, 0, row) = std::max(0, window.count - 1);
        });
    });
}

}  // namespace millrace::ops::cpu
