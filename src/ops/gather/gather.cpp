#include "ops/gather/gather.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(gather_images, Phase::data, {"images"}, {"labels"}, {"subset"}, {"state"}, {"x", write}, {"y", write});
MILLRACE_OPERATOR(gather_rows, Phase::data, {"table"}, {"subset"}, {"state"}, {"out", write});
MILLRACE_OPERATOR(gather_features, Phase::data, {"table"}, {"labels"}, {"mean"}, {"inverse"}, {"subset"}, {"state"}, {"x", write},
                  {"y", write});
MILLRACE_OPERATOR(gather_windows, Phase::data, {"stream"}, {"ranges"}, {"state"}, {"out", write}, {"lengths", write});

namespace {

/// A table of `count` rows is read by the order of a subset, or holds two windows.
template <class Params>
void check_order(Checker& c, const Params& p, int subset, int count) {
    c.allow({subset}, Type::i32, {1, 1, static_cast<int>(p.samples), 1}).needs({subset}, p.window == 0);
    c.that(p.window == 0 || std::int64_t{p.window} * 2 <= count, "a table of windows holds two");
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

}  // namespace millrace::ops
