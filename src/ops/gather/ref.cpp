#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/philox.h"
#include "ops/gather/gather.h"
#include "ops/ref/kernels.h"

namespace millrace::ops::ref {
namespace {

/// Where an output pixel of an augmented image comes from.
struct Affine {
    double cosine = 1, sine = 0, scale = 1, dx = 0, dy = 0, centre = 0;
    bool flipped = false;

    /// Index of the source pixel, or -1 outside the image.
    [[nodiscard]] int source(int pixel, int side) const {
        const int u = pixel % side, v = pixel / side;
        const double across = ((flipped ? side - 1 - u : u) - centre - dx) / scale;
        const double down = (v - centre - dy) / scale;
        const double column = std::floor(cosine * across + sine * down + centre + 0.5);
        const double row = std::floor(cosine * down - sine * across + centre + 0.5);
        if (!(column >= 0 && column < side && row >= 0 && row < side)) return -1;
        return static_cast<int>(row) * side + static_cast<int>(column);
    }
};

Affine draw(const GatherImagesParams& params, const MemberState& state, int row) {
    const auto uniform = [&](int j) {
        const auto element = static_cast<std::uint64_t>(row) * 8 + static_cast<std::uint64_t>(j);
        return static_cast<double>(
            base::uniform01(base::random_bits(state.seed, state.step, state.micro, params.op_number, element)));
    };
    const auto within = [&](int j, double range) { return (2 * uniform(j) - 1) * range; };
    Affine affine;
    const double angle = within(0, params.rotate) * 3.14159265358979323846 / 180;
    affine.cosine = std::cos(angle);
    affine.sine = std::sin(angle);
    affine.dx = std::floor(within(1, params.shift) * params.side + 0.5);
    affine.dy = std::floor(within(2, params.shift) * params.side + 0.5);
    affine.scale = 1 + within(3, params.scale);
    affine.flipped = uniform(4) < params.flip;
    affine.centre = (params.side - 1) / 2.0;
    return affine;
}

/// Which sample row `row` of the micro-batch is, by its number where there is no `subset`; none behind the end of the pass.
template <class P>
std::optional<std::int32_t> sample_of(const P& params, const MemberState& state, const tensor::Operand& subset, int row) {
    const std::uint32_t first = params.training ? state.position : state.eval_position;
    const std::uint32_t q = params.rank.position(first + static_cast<std::uint32_t>(row));
    if (q >= params.samples) return std::nullopt;
    const std::uint32_t place = params.shuffle ? base::shuffled_index(state.seed, state.epoch, q, params.samples) : q;
    return subset.present() ? *subset.at<std::int32_t>(0, 0, place) : static_cast<std::int32_t>(place);
}

}  // namespace

void run_gather_images(const Bound& bound) {
    namespace at = gather_images;
    const auto& params = bound.params<GatherImagesParams>();
    const auto &images = bound[at::images], &x = bound[at::x];
    for (int m = 0; m < x.k; ++m) {
        const MemberState& state = state_of(bound[at::state], m);
        for (int b = 0; b < x.rows; ++b) {
            const auto index = sample_of(params, state, bound[at::subset], b);
            if (!index) break;
            const std::uint8_t* image = images.at<std::uint8_t>(0, 0, *index);
            const Affine affine = draw(params, state, b);
            for (int p = 0; p < x.cols; ++p) {
                const int source = params.augment ? affine.source(p, static_cast<int>(params.side)) : p;
                const double grey = source < 0 ? 0 : image[source];
                x.at<double>(m, 0, b)[p] = (grey / 255 - params.mean) / params.std;
            }
            *bound[at::y].at<std::int32_t>(m, 0, b) = *bound[at::labels].at<std::uint8_t>(0, 0, *index);
        }
    }
}

void run_gather_rows(const Bound& bound) {
    namespace at = gather_rows;
    const auto& params = bound.params<GatherRowsParams>();
    const auto &table = bound[at::table], &out = bound[at::out];
    for (int m = 0; m < out.k; ++m)
        for (int b = 0; b < out.rows; ++b) {
            const auto index = sample_of(params, state_of(bound[at::state], m), bound[at::subset], b);
            if (!index) break;
            if (out.dtype == tensor::DType::i32)
                std::copy_n(table.at<std::int32_t>(0, 0, *index), out.cols, out.at<std::int32_t>(m, 0, b));
            else
                std::copy_n(table.at<double>(0, 0, *index), out.cols, out.at<double>(m, 0, b));
        }
}

void run_gather_features(const Bound& bound) {
    namespace at = gather_features;
    const auto& params = bound.params<GatherFeaturesParams>();
    const auto& x = bound[at::x];
    for (int m = 0; m < x.k; ++m) {
        const MemberState& state = state_of(bound[at::state], m);
        for (int b = 0; b < x.rows; ++b) {
            std::optional<std::int32_t> index;
            if (params.window == 0) {
                index = sample_of(params, state, bound[at::subset], b);
            } else {
                const std::uint32_t q = params.rank.position((params.training ? state.position : state.eval_position) +
                                                             static_cast<std::uint32_t>(b));
                if (q < params.samples) index = static_cast<std::int32_t>(window_row(params, state.seed, state.epoch, q));
            }
            if (!index) break;
            const auto uniform = [&](std::uint64_t j) {
                return static_cast<double>(base::uniform01(base::random_bits(
                    state.seed, state.step, state.micro, params.op_number, static_cast<std::uint64_t>(b) * 2 + j)));
            };
            int first = 0, masked = 0;
            if (params.mask > 0) {
                masked = std::min(x.cols, static_cast<int>(uniform(0) * (params.mask + 1)));
                first = static_cast<int>(uniform(1) * (x.cols - masked + 1));
            }
            const std::uint16_t* row = bound[at::table].at<std::uint16_t>(0, 0, *index);
            for (int d = 0; d < x.cols; ++d) {
                const double value = tensor::from_f16(row[d]), mean = bound[at::mean].at<double>(0)[d];
                x.at<double>(m, 0, b)[d] =
                    d >= first && d < first + masked ? 0 : (value - mean) * bound[at::inverse].at<double>(0)[d];
            }
            *bound[at::y].at<std::int32_t>(m, 0, b) =
                *bound[at::labels].at<std::int32_t>(0, 0, *index / static_cast<int>(params.rows_per_label));
        }
    }
}

void run_gather_windows(const Bound& bound) {
    namespace at = gather_windows;
    const auto& params = bound.params<GatherWindowsParams>();
    const auto &stream = bound[at::stream], &out = bound[at::out];
    std::vector<TokenRange> ranges;
    for (int d = 0; d < bound[at::ranges].rows; ++d) {
        const auto* row = bound[at::ranges].at<std::int32_t>(0, 0, d);
        ranges.push_back({row[0], row[1], row[2], row[3]});
    }
    for (int m = 0; m < out.k; ++m) {
        const MemberState& state = state_of(bound[at::state], m);
        for (int b = 0; b < out.rows; ++b) {
            const std::uint32_t q =
                params.rank.position((params.training ? state.position : state.eval_position) + static_cast<std::uint32_t>(b));
            if (q >= params.samples) break;
            const TokenWindow window =
                token_window(params, state.seed, state.epoch, q, out.cols - 1, ranges.data(), static_cast<int>(ranges.size()));
            for (int c = 0; c < out.cols; ++c)
                out.at<std::int32_t>(m, 0, b)[c] = c < window.count ? *stream.at<std::int32_t>(0, 0, window.first + c) : 0;
            *bound[at::lengths].at<std::int32_t>(m, 0, b) = std::max(0, window.count - 1);
        }
    }
}

}  // namespace millrace::ops::ref
