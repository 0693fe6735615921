#include "ops/gather/gather.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/philox.h"
#include "ops/host_kernels.h"
#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(gather_images, Phase::data, {"images"}, {"labels"}, {"subset"}, {"state"}, {"x", write}, {"y", write});
MILLRACE_OPERATOR(gather_rows, Phase::data, {"table"}, {"subset"}, {"state"}, {"out", write});
MILLRACE_OPERATOR(gather_features, Phase::data, {"table"}, {"labels"}, {"mean"}, {"inverse"}, {"subset"}, {"state"}, {"x", write},
                  {"y", write});
MILLRACE_OPERATOR(gather_windows, Phase::data, {"stream"}, {"ranges"}, {"state"}, {"out", write}, {"lengths", write});

namespace {

using tensor::DType;
using tensor::Operand;

/// A table of `count` rows is read by the order of a subset, or holds two windows.
template <class Params>
void check_order(Checker& c, const Params& p, int subset, int count) {
    c.allow({subset}, Type::i32, {1, 1, static_cast<int>(p.samples), 1}).needs({subset}, p.window == 0);
    c.that(p.window == 0 || std::int64_t{p.window} * 2 <= count, "a table of windows holds two");
}

/// Calls body(state, member, row, q) for rows [begin, end) of a member, as far as the pass still has samples for them.
template <class Params, class Body>
void for_each_position(const Params& p, const Operand& state, int member, int begin, int end, Body&& body) {
    const MemberState& s = state_of(state, member);
    for (int row = begin; row < end; ++row) {
        const std::uint32_t first = p.training ? s.position : s.eval_position;
        const std::uint32_t q = first + static_cast<std::uint32_t>(row);
        if (q >= p.samples) break;
        body(s, row, q);
    }
}

/// The same with the number of the sample in the tables.
template <class Params, class Body>
void for_each_sample(const Params& p, const Operand& state, const Operand& subset, int member, int begin, int end, Body&& body) {
    const base::Shuffle order = base::make_shuffle(state_of(state, member).seed, state_of(state, member).epoch, p.samples);
    for_each_position(p, state, member, begin, end, [&](const MemberState& s, int row, std::uint32_t q) {
        if constexpr (requires { p.window; })
            if (p.window > 0) return body(s, row, static_cast<std::int32_t>(window_row(p, s.seed, s.epoch, q)));
        const std::uint32_t place = p.shuffle ? base::shuffled_index(order, q) : q;
        body(s, row, subset.present() ? *subset.at<std::int32_t>(0, 0, place) : static_cast<std::int32_t>(place));
    });
}

template <class T>
T drawn(const MemberState& s, std::uint32_t op_number, int row, int numbers, int j) {
    const auto element = static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(numbers) + static_cast<std::uint64_t>(j);
    return static_cast<T>(base::uniform01(base::random_bits(s.seed, s.step, s.micro, op_number, element)));
}

/// What makes (pixel / 255 - mean) / std of a pixel, by channel.
template <class T>
struct Levels {
    T factor[kMostChannels], shift[kMostChannels];

    explicit Levels(const GatherImagesParams& p) {
        for (int c = 0; c < kMostChannels; ++c) {
            factor[c] = static_cast<T>(1.0 / (255.0 * static_cast<double>(p.std[c])));
            shift[c] = static_cast<T>(-static_cast<double>(p.mean[c]) / static_cast<double>(p.std[c]));
        }
    }
};

/// One sample's affine map from an output pixel to the source pixel.
template <class T>
struct Affine {
    T cosine, sine, dx, dy, scale, centre_x, centre_y;
    bool flip;

    Affine(const GatherImagesParams& p, const MemberState& s, int row) {
        const auto unit = [&](int j) { return drawn<T>(s, p.op_number, row, 8, j); };
        const auto spread = [&](int j, float range) { return (2 * unit(j) - 1) * static_cast<T>(range); };
        const T angle = spread(0, p.rotate) * std::numbers::pi_v<T> / 180;
        cosine = std::cos(angle);
        sine = std::sin(angle);
        dx = std::floor(spread(1, p.shift) * static_cast<T>(p.width) + T{0.5});
        dy = std::floor(spread(2, p.shift) * static_cast<T>(p.height) + T{0.5});
        scale = 1 / (1 + spread(3, p.scale));
        flip = unit(4) < static_cast<T>(p.flip);
        centre_x = static_cast<T>(p.width - 1) / 2;
        centre_y = static_cast<T>(p.height - 1) / 2;
    }

    /// out = source * factor + shift of its channel, the source 0 outside of the image.
    void apply(const GatherImagesParams& p, const std::uint8_t* image, const Levels<T>& levels, T* out) const {
        const auto width = static_cast<int>(p.width), height = static_cast<int>(p.height),
                   channels = static_cast<int>(p.channels);
        for (int v = 0; v < height; ++v) {
            const T b = (static_cast<T>(v) - centre_y - dy) * scale;
            for (int u = 0; u < width; ++u) {
                const T a = (static_cast<T>(flip ? width - 1 - u : u) - centre_x - dx) * scale;
                const T column = std::floor(cosine * a + sine * b + centre_x + T{0.5}),
                        row = std::floor(cosine * b - sine * a + centre_y + T{0.5});
                const bool inside = column >= 0 && column < static_cast<T>(width) && row >= 0 && row < static_cast<T>(height);
                const std::uint8_t* pixel =
                    image + (inside ? (static_cast<int>(row) * width + static_cast<int>(column)) * channels : 0);
                for (int c = 0; c < channels; ++c)
                    *out++ = (inside ? static_cast<T>(pixel[c]) : T{}) * levels.factor[c] + levels.shift[c];
            }
        }
    }
};

template <class T>
void gather_image_rows(const Bound& b, int member, int begin, int end, const host::Loops<T>& loops) {
    using namespace gather_images;
    const auto& p = b.params<GatherImagesParams>();
    const Levels<T> levels(p);
    const int count = b[x].cols, channels = static_cast<int>(p.channels);
    for_each_sample(p, b[state], b[subset], member, begin, end, [&](const MemberState& s, int row, std::int32_t sample) {
        const std::uint8_t* image = b[images].at<std::uint8_t>(0, 0, sample);
        T* out = b[x].at<T>(member, 0, row);
        if (p.augment)
            Affine<T>(p, s, row).apply(p, image, levels, out);
        else if (channels == 1)
            loops.pixels(count, image, levels.factor[0], levels.shift[0], out);
        else
            for (int i = 0; i < count; i += channels)
                for (int c = 0; c < channels; ++c) out[i + c] = static_cast<T>(image[i + c]) * levels.factor[c] + levels.shift[c];
        if (b[y].present()) *b[y].at<std::int32_t>(member, 0, row) = *b[labels].at<std::int32_t>(0, 0, sample);
    });
}

template <class T>
void gather_table_rows(const Bound& b, int member, int begin, int end) {
    using namespace gather_rows;
    const Operand& to = b[out];
    for_each_sample(b.params<GatherRowsParams>(), b[state], b[subset], member, begin, end,
                    [&](const MemberState&, int row, std::int32_t sample) {
                        if (to.dtype == DType::i32)
                            std::copy_n(b[table].at<std::int32_t>(0, 0, sample), to.cols, to.at<std::int32_t>(member, 0, row));
                        else
                            std::copy_n(b[table].at<T>(0, 0, sample), to.cols, to.at<T>(member, 0, row));
                    });
}

template <class T>
void gather_feature_rows(const Bound& b, int member, int begin, int end) {
    using namespace gather_features;
    const auto& p = b.params<GatherFeaturesParams>();
    const int width = b[x].cols;
    for_each_sample(p, b[state], b[subset], member, begin, end, [&](const MemberState& s, int row, std::int32_t sample) {
        const std::uint16_t* from = b[table].at<std::uint16_t>(0, 0, sample);
        const T *centre = b[mean].at<T>(0), *scale = b[inverse].at<T>(0);
        T* to = b[x].at<T>(member, 0, row);
        for (int d = 0; d < width; ++d) to[d] = (static_cast<T>(tensor::from_f16(from[d])) - centre[d]) * scale[d];
        *b[y].at<std::int32_t>(member, 0, row) = *b[labels].at<std::int32_t>(0, 0, sample / static_cast<int>(p.rows_per_label));
        if (p.mask == 0) return;
        const auto unit = [&](int j) { return drawn<T>(s, p.op_number, row, 2, j); };
        const int masked = std::min(width, static_cast<int>(unit(0) * static_cast<T>(p.mask + 1)));
        std::fill_n(to + static_cast<int>(unit(1) * static_cast<T>(width - masked + 1)), masked, T{});
    });
}

template <class>
void gather_window_rows(const Bound& b, int member, int begin, int end) {
    using namespace gather_windows;
    const auto& p = b.params<GatherWindowsParams>();
    const Operand& to = b[out];
    const auto* table = reinterpret_cast<const TokenRange*>(b[ranges].at<std::int32_t>(0));
    for_each_position(p, b[state], member, begin, end, [&](const MemberState& s, int row, std::uint32_t q) {
        const TokenWindow window = token_window(p, s.seed, s.epoch, q, to.cols - 1, table, b[ranges].rows);
        auto* tokens = to.at<std::int32_t>(member, 0, row);
        for (int c = 0; c < window.count; ++c) tokens[c] = *b[stream].at<std::int32_t>(0, 0, window.first + c);
        std::fill(tokens + window.count, tokens + to.cols, 0);
        *b[lengths].at<std::int32_t>(member, 0, row) = std::max(0, window.count - 1);
    });
}

}  // namespace

void gather_images::check(Checker& c) {
    const auto& p = c.params<GatherImagesParams>();
    const auto [k, g, rows, cols] = c.shape(x);
    const int count = c.shape(images).rows;
    c.require({x}, real, {k, 1, rows, cols}).allow({y}, i32, {k, 1, rows, 1}).state(state, k);
    c.require({images}, u8, {1, 1, count, cols}).allow({labels}, i32, {1, 1, count, 1});
    c.needs({labels}, c[y].present()).needs({y}, c[labels].present());
    check_order(c, p, subset, count);
    c.that(p.channels >= 1 && p.channels <= kMostChannels, "pixels have one to four channels");
    for (std::uint32_t channel = 0; channel < p.channels; ++channel) c.that(p.std[channel] > 0, "std must be positive");
    c.that(p.height * p.width * p.channels == static_cast<std::uint32_t>(cols), "images are height x width x channels");
}

void gather_rows::check(Checker& c) {
    const auto& p = c.params<GatherRowsParams>();
    const auto [k, g, rows, cols] = c.shape(out);
    const bool whole = c[out].dtype == tensor::DType::i32;
    const int count = c.shape(table).rows;
    c.require({table}, whole ? i32 : stat, {1, 1, count, cols}).state(state, k);
    c.require({out}, whole ? i32 : floating, {k, 1, rows, cols});
    check_order(c, p, subset, count);
}

void gather_features::check(Checker& c) {
    const auto& p = c.params<GatherFeaturesParams>();
    const auto [k, g, rows, cols] = c.shape(x);
    const int count = c.shape(table).rows;
    c.require({x}, real, {k, 1, rows, cols}).require({y}, i32, {k, 1, rows, 1}).state(state, k);
    c.require({table}, f16, {1, 1, count, cols}).require({labels}, i32, {1, 1, c.shape(labels).rows, 1});
    c.require({mean, inverse}, stat, {1, 1, 1, cols}).that(p.rows_per_label > 0, "a label has at least one row");
    check_order(c, p, subset, count);
}

void gather_windows::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(out);
    const int count = c.shape(ranges).rows;
    c.require({out}, i32, {k, 1, rows, cols}).require({lengths}, i32, {k, 1, rows, 1}).state(state, k);
    c.require({stream}, i32, {1, 1, c.shape(stream).rows, 1}).require({ranges}, i32, {1, 1, count, kTokenRangeColumns});
    c.that(count > 0 && c[ranges].stride_row == kTokenRangeColumns, "ranges are rows of four, one at least");
    c.that(c.params<GatherWindowsParams>().epochs > 0, "a range is read for one epoch at least");
    c.that(cols > 1, "a window holds an input and a target");
}

MILLRACE_HOST_PIECES(gather_images, x, bound[gather_images::x].cols, gather_image_rows);
MILLRACE_HOST_PIECES(gather_rows, out, bound[gather_rows::out].cols, gather_table_rows);
MILLRACE_HOST_PIECES(gather_features, x, bound[gather_features::x].cols, gather_feature_rows);
MILLRACE_HOST_PIECES(gather_windows, out, bound[gather_windows::out].cols, gather_window_rows);

}  // namespace millrace::ops
