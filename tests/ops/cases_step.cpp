#include <fmt/format.h>

#include <cstddef>

#include "op_case.h"
#include "ops/gather/gather.h"
#include "ops/step/step.h"

namespace millrace::ops::cases {
namespace {

struct Gather {
    std::string note;
    int k = 1, count = 40, samples = 29, rows = 5, side = 28;
    bool shuffle = true, training = true, augment = false;
    float rotate = 0, shift = 0, scale = 0, flip = 0;
    Layout layout = kDense;
    int height = 0;  ///< 0: side
    int channels = 1;
    bool labels = true;
    std::uint32_t window = 0;
};

OpCase gather(const Gather& g) {
    namespace at = gather_images;
    OpCase c;
    const int height = g.height > 0 ? g.height : g.side, pixels = height * g.side * g.channels;
    c.name = fmt::format("gather_images/{}/K{}_B{}_P{}", g.note, g.k, g.rows, pixels);
    c.op = &gather_images::kDef;
    GatherImagesParams params;
    params.samples = static_cast<std::uint32_t>(g.samples);
    params.op_number = 23;
    params.shuffle = g.shuffle;
    params.training = g.training;
    params.augment = g.augment;
    for (int channel = 0; channel < kMostChannels; ++channel) {
        params.mean[channel] = 0.2860f + 0.1f * static_cast<float>(channel);
        params.std[channel] = 0.3530f - 0.05f * static_cast<float>(channel);
    }
    params.height = static_cast<std::uint32_t>(height);
    params.width = static_cast<std::uint32_t>(g.side);
    params.channels = static_cast<std::uint32_t>(g.channels);
    params.rotate = g.rotate;
    params.shift = g.shift;
    params.scale = g.scale;
    params.flip = g.flip;
    params.window = g.window;
    c.params = params;
    c.members = g.k;
    c.states = sample_states(g.k);
    // A coordinate within rounding of .5 may fall to the neighbouring pixel.
    c.outliers = g.rotate > 0 || g.scale > 0 ? 2e-3 : 0;
    std::vector<double> subset;
    for (int i = 0; i < g.samples; ++i) subset.push_back((i * 7 + 3) % g.count);
    c.slot(at::images, Element::u8, 1, 1, g.count, pixels, integers(0, 255));
    if (g.labels) c.slot(at::labels, Element::i32, 1, 1, g.count, 1, integers(0, 65535));
    if (g.window == 0) c.slot(at::subset, Element::i32, 1, 1, g.samples, 1, given(subset));
    c.state(at::state);
    c.slot(at::x, Element::real, g.k, 1, g.rows, pixels, poison(), g.layout);
    return g.labels ? c.slot(at::y, Element::i32, g.k, 1, g.rows, 1, poison()) : c;
}

struct Rows {
    std::string note;
    int k = 1, count = 40, samples = 29, rows = 5, cols = 13;
    bool shuffle = true, training = true;
    Layout layout = kDense;
    Element element = Element::real;
    std::uint32_t window = 0;
};

OpCase rows(const Rows& g) {
    namespace at = gather_rows;
    OpCase c;
    c.name = fmt::format("gather_rows/{}/K{}_B{}_D{}", g.note, g.k, g.rows, g.cols);
    c.op = &gather_rows::kDef;
    c.params = GatherRowsParams{static_cast<std::uint32_t>(g.samples), g.shuffle, g.training, g.window};
    c.members = g.k;
    c.states = sample_states(g.k);
    c.f32_tolerance = 0;
    if (g.element != Element::real) c.bf16_tolerance = 0;
    std::vector<double> subset;
    for (int i = 0; i < g.samples; ++i) subset.push_back((i * 7 + 3) % g.count);
    const bool whole = g.element == Element::i32;
    c.slot(at::table, whole ? Element::i32 : Element::stat, 1, 1, g.count, g.cols,
           whole ? integers(-16777300, 2147483000) : uniform(-1, 1), g.layout);
    if (g.window == 0) c.slot(at::subset, Element::i32, 1, 1, g.samples, 1, given(subset));
    c.state(at::state);
    return c.slot(at::out, g.element, g.k, 1, g.rows, g.cols, poison(), g.layout);
}

struct Features {
    std::string note;
    int k = 2, labels = 7, per_label = 3, samples = 17, rows = 5, cols = 13;
    std::uint32_t mask = 0;
    bool shuffle = true, training = true;
    Layout layout = kDense;
    std::uint32_t window = 0;
};

OpCase features(const Features& g) {
    namespace at = gather_features;
    OpCase c;
    c.name = fmt::format("gather_features/{}/K{}_B{}_D{}", g.note, g.k, g.rows, g.cols);
    c.op = &gather_features::kDef;
    c.params = GatherFeaturesParams{static_cast<std::uint32_t>(g.samples),
                                    9,
                                    static_cast<std::uint32_t>(g.per_label),
                                    g.mask,
                                    g.shuffle,
                                    g.training,
                                    g.window};
    c.members = g.k;
    c.states = sample_states(g.k);
    std::vector<double> subset;
    for (int i = 0; i < g.samples; ++i) subset.push_back((i * 5 + 3) % (g.labels * g.per_label));
    c.slot(at::table, Element::f16, 1, 1, g.labels * g.per_label, g.cols, uniform(-80, 10));
    c.slot(at::labels, Element::i32, 1, 1, g.labels, 1, integers(0, 4));
    c.slot(at::mean, Element::stat, 1, 1, 1, g.cols, uniform(-40, -20));
    c.slot(at::inverse, Element::stat, 1, 1, 1, g.cols, uniform(0.05, 0.2));
    if (g.window == 0) c.slot(at::subset, Element::i32, 1, 1, g.samples, 1, given(subset));
    c.state(at::state);
    c.slot(at::x, Element::real, g.k, 1, g.rows, g.cols, poison(), g.layout);
    c.slots[at::x].exact_zeros = g.mask > 0;
    return c.slot(at::y, Element::i32, g.k, 1, g.rows, 1, poison());
}

struct Windows {
    std::string note;
    int k = 2, tokens = 97, samples = 0, rows = 5, length = 7;
    bool training = true;
    Layout layout = kDense;
    std::uint32_t epochs = 1;
    std::vector<int> ranges = {};  ///< tokens of each, in this order; empty: one of all tokens
};

OpCase windows(const Windows& g) {
    namespace at = gather_windows;
    OpCase c;
    c.name = fmt::format("gather_windows/{}/K{}_B{}_T{}", g.note, g.k, g.rows, g.length);
    c.op = &gather_windows::kDef;
    c.params = GatherWindowsParams{static_cast<std::uint32_t>(g.samples), g.training, g.epochs};
    c.members = g.k;
    c.states = sample_states(g.k);
    c.f32_tolerance = c.bf16_tolerance = 0;
    c.slot(at::stream, Element::i32, 1, 1, g.tokens, 1, integers(4, 9999));
    std::vector<double> table;
    int first = 0, first_window = 0;
    for (const int tokens : g.ranges.empty() ? std::vector{g.tokens} : g.ranges) {
        const int windows = g.ranges.empty() ? g.samples : tokens / g.length - 1;
        for (const int value : {first, tokens, first_window, windows}) table.push_back(value);
        first += tokens;
        first_window += (tokens - 1 + g.length - 1) / g.length;
    }
    c.slot(at::ranges, Element::i32, 1, 1, static_cast<int>(table.size()) / kTokenRangeColumns, kTokenRangeColumns, given(table));
    c.state(at::state);
    c.slot(at::out, Element::i32, g.k, 1, g.rows, g.length + 1, poison(), g.layout);
    return c.slot(at::lengths, Element::i32, g.k, 1, g.rows, 1, poison());
}

/// All members with the schedule of `schedule`, or member m with that of number m of several.
OpCase begin(const std::string& note, const std::vector<MemberState>& schedules, std::uint32_t rank = 0,
             std::uint32_t first = 0) {
    OpCase c;
    c.name = "step_begin/" + note;
    c.op = &step_begin::kDef;
    c.params = StepBeginParams{rank, first};
    c.f32_tolerance = c.bf16_tolerance = 2e-7;
    c.states = sample_states(9);
    const std::uint32_t steps[] = {0, 1, 4, 5, 6, 9, 19, 20, 41};  // before, at and after warm-up, end and intervals
    for (std::size_t m = 0; m < c.states.size(); ++m) {
        const MemberState& schedule = schedules[m % schedules.size()];
        c.states[m].schedule = schedule.schedule;
        c.states[m].warmup_steps = schedule.warmup_steps;
        c.states[m].total_steps = schedule.total_steps;
        c.states[m].interval = schedule.interval;
        c.states[m].floor = schedule.floor;
        c.states[m].gamma = schedule.gamma;
        c.states[m].step = steps[m];
        c.states[m].applied = m == 3 ? 2 : steps[m];
        c.states[m].micro = 3;
        c.states[m].nonfinite = m % 2;
        c.states[m].beta1 = m == 7 ? 0 : 0.9f;
    }
    c.members = static_cast<int>(c.states.size());
    std::vector<GroupState> table = sample_groups(c.members, 3);
    for (std::size_t m = 0; m < c.states.size(); ++m) {
        table[3 * m].applied = c.states[m].applied;
        table[3 * m + 1].trainable = m % 2;
    }
    return c.state(step_begin::state).groups(step_begin::groups, table);
}

OpCase end(const std::string& note, const MicroEndParams& params) {
    OpCase c;
    c.name = "micro_end/" + note;
    c.op = &micro_end::kDef;
    c.params = params;
    c.states = sample_states(4);
    const std::uint32_t positions[] = {0, 32, 68, 69};
    for (std::size_t m = 0; m < 4; ++m) c.states[m].position = c.states[m].eval_position = positions[m];
    c.members = 4;
    return c.state(micro_end::state);
}

OpCase push(int k, std::uint32_t capacity, int repeats, std::uint64_t earlier) {
    namespace at = metrics_push;
    OpCase c;
    c.name = fmt::format("metrics_push/K{}_capacity{}_pushes{}_after{}", k, capacity, repeats, earlier);
    c.op = &metrics_push::kDef;
    c.params = MetricsPushParams{capacity};
    c.members = k;
    c.splits = false;  // the ring's rows hold all members
    c.repeats = repeats;
    c.states = sample_states(k);
    std::vector<double> bytes;
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<double>(earlier >> (8 * i) & 0xFFu));
    c.state(at::state);
    c.slot(at::counter, Element::u8, 1, 1, 1, 8, given(bytes));
    constexpr int kRow = sizeof(MetricsRow);
    static_assert(offsetof(MetricsRow, clock) == kRow - 8);
    c.slot(at::ring, Element::u8, 1, 1, static_cast<int>(capacity), k * kRow, constant(0));
    c.slots[at::ring].clock_every = kRow;
    return c;
}

}  // namespace

void add_data_cases(std::vector<OpCase>& cases) {
    cases.push_back(features({.note = "shuffled"}));
    cases.push_back(features({.note = "in_order", .shuffle = false, .training = false}));
    cases.push_back(features({.note = "masked", .samples = 60, .rows = 17, .cols = 64, .mask = 8}));
    cases.push_back(features({.note = "mask_wider_than_rows", .k = 3, .samples = 60, .rows = 17, .cols = 3, .mask = 40}));
    cases.push_back(features({.note = "own_labels", .labels = 21, .per_label = 1}));
    cases.push_back(features({.note = "windows", .layout = kWindow}));
    // 23 samples in windows of 5: rows of two windows in a batch, and a last window of three.
    cases.push_back(features({.note = "streamed", .labels = 10, .per_label = 1, .samples = 23, .window = 5}));
    cases.push_back(features({.note = "streamed_in_order",
                              .labels = 10,
                              .per_label = 1,
                              .samples = 23,
                              .shuffle = false,
                              .training = false,
                              .window = 5}));
    cases.push_back(features({.note = "one_window", .labels = 46, .per_label = 1, .samples = 23, .mask = 3, .window = 23}));
    cases.push_back(features({.note = "no_rows", .rows = 0}));
    cases.push_back(gather({.note = "in_order", .shuffle = false}));
    cases.push_back(gather({.note = "evaluation", .k = 2, .rows = 11, .shuffle = false, .training = false}));
    cases.push_back(gather({.note = "shuffled", .k = 3, .rows = 7}));
    cases.push_back(gather({.note = "shuffled_whole_pass", .rows = 29, .side = 5}));
    cases.push_back(gather({.note = "padded_rows", .k = 2, .rows = 8, .layout = {0, 16, false, false}}));
    cases.push_back(gather({.note = "windows", .k = 2, .rows = 3, .side = 7, .layout = kWindow}));
    cases.push_back(gather({.note = "one", .count = 1, .samples = 1, .rows = 1, .side = 1}));
    cases.push_back(gather({.note = "colour", .k = 2, .side = 7, .height = 5, .channels = 3}));
    cases.push_back(
        gather({.note = "colour_runs", .rows = 9, .side = 16, .layout = {0, 16, false, false}, .height = 3, .channels = 3}));
    cases.push_back(gather({.note = "four_channels", .side = 4, .channels = 4, .labels = false}));
    cases.push_back(gather({.note = "augment_wide_colour",
                            .k = 2,
                            .rows = 9,
                            .side = 11,
                            .augment = true,
                            .rotate = 40,
                            .shift = 0.3f,
                            .scale = 0.3f,
                            .flip = 0.5f,
                            .height = 6,
                            .channels = 3}));
    cases.push_back(gather({.note = "augment_nothing", .k = 2, .augment = true}));
    cases.push_back(gather({.note = "augment_rotate", .k = 2, .augment = true, .rotate = 15}));
    cases.push_back(gather({.note = "augment_shift", .k = 2, .augment = true, .shift = 0.1f}));
    cases.push_back(gather({.note = "augment_scale", .k = 2, .augment = true, .scale = 0.1f}));
    cases.push_back(gather({.note = "augment_flip", .k = 2, .rows = 9, .augment = true, .flip = 0.5f}));
    cases.push_back(gather({.note = "augment_all",
                            .k = 2,
                            .rows = 16,
                            .augment = true,
                            .rotate = 30,
                            .shift = 0.2f,
                            .scale = 0.3f,
                            .flip = 0.5f,
                            .layout = {0, 16, false, false}}));
    cases.push_back(gather({.note = "augment_all_odd_side",
                            .k = 2,
                            .rows = 9,
                            .side = 13,
                            .augment = true,
                            .rotate = 180,
                            .shift = 0.5f,
                            .scale = 0.5f,
                            .flip = 0.5f}));
    cases.push_back(
        gather({.note = "table_of_windows", .k = 3, .samples = 53, .rows = 7, .layout = {0, 16, false, false}, .window = 20}));
    cases.push_back(
        gather({.note = "table_of_windows_evaluation", .k = 2, .rows = 11, .shuffle = false, .training = false, .window = 7}));
    cases.push_back(gather({.note = "table_of_windows_augmented",
                            .k = 2,
                            .count = 47,
                            .samples = 59,
                            .rows = 9,
                            .side = 11,
                            .augment = true,
                            .rotate = 40,
                            .shift = 0.3f,
                            .scale = 0.3f,
                            .flip = 0.5f,
                            .height = 6,
                            .channels = 3,
                            .labels = false,
                            .window = 23}));
    cases.push_back(windows({.note = "shuffled", .k = 3, .samples = 12, .rows = 4}));
    cases.push_back(windows({.note = "short_end", .samples = 14, .rows = 11, .training = false}));
    cases.push_back(windows({.note = "full_end", .tokens = 99, .samples = 14, .rows = 11, .training = false}));
    cases.push_back(windows({.note = "prime", .tokens = 1009, .samples = 31, .rows = 13, .length = 31, .layout = kWindow}));
    cases.push_back(windows({.note = "whole_pass", .k = 1, .tokens = 1000, .samples = 14, .rows = 14, .length = 64}));
    cases.push_back(windows({.note = "one_target", .tokens = 12, .samples = 11, .length = 1}));
    cases.push_back(windows({.note = "no_rows", .samples = 12, .rows = 0}));
    // Members are in epochs 1 to 4: in the first range, the second, and the last, which goes on.
    cases.push_back(
        windows({.note = "ranges", .k = 4, .tokens = 450, .samples = 16, .rows = 4, .epochs = 2, .ranges = {130, 200, 120}}));
    cases.push_back(windows(
        {.note = "all_ranges", .k = 3, .tokens = 190, .samples = 28, .rows = 24, .training = false, .ranges = {50, 80, 60}}));
    cases.push_back(windows({.note = "threads", .tokens = 60000, .samples = 232, .rows = 203, .length = 257}));
    cases.push_back(rows({.note = "in_order", .shuffle = false}));
    cases.push_back(rows({.note = "evaluation", .k = 3, .rows = 11, .shuffle = false, .training = false}));
    cases.push_back(rows({.note = "shuffled", .k = 3, .rows = 7, .cols = 768}));
    cases.push_back(rows({.note = "whole_pass", .rows = 29, .cols = 5}));
    cases.push_back(rows({.note = "to_the_end", .k = 2, .samples = 9, .rows = 5}));
    cases.push_back(rows({.note = "padded_rows", .k = 2, .rows = 8, .cols = 31, .layout = {0, 16, false, false}}));
    cases.push_back(rows({.note = "windows", .k = 2, .rows = 3, .cols = 17, .layout = kWindow}));
    cases.push_back(rows({.note = "one", .count = 1, .samples = 1, .rows = 1, .cols = 1}));
    cases.push_back(rows({.note = "no_rows", .k = 2, .rows = 0}));
    cases.push_back(rows({.note = "stat", .k = 2, .rows = 6, .cols = 67, .element = Element::stat}));
    cases.push_back(rows({.note = "whole_numbers", .k = 2, .rows = 6, .cols = 67, .element = Element::i32}));
    cases.push_back(rows({.note = "table_of_windows", .k = 2, .samples = 53, .rows = 7, .window = 19}));
    cases.push_back(rows({.note = "table_of_one_window",
                          .count = 58,
                          .shuffle = false,
                          .training = false,
                          .element = Element::i32,
                          .window = 29}));
    cases.push_back(rows({.note = "threads", .k = 2, .count = 301, .samples = 211, .rows = 203, .cols = 257}));
}

void add_step_cases(std::vector<OpCase>& cases) {
    using enum ScheduleKind;
    const MemberState plain, cosine_plain{.schedule = cosine, .total_steps = 20}, warm{.warmup_steps = 5},
        cosine_floor{.floor = 0.1, .schedule = cosine, .warmup_steps = 5, .total_steps = 20},
        cosine_late{.schedule = cosine, .warmup_steps = 30, .total_steps = 20},
        stepped{.gamma = 0.5, .schedule = step, .interval = 5},
        stepped_warm{.gamma = 0.9, .schedule = step, .warmup_steps = 7, .interval = 1};
    cases.push_back(begin("constant", {plain}));
    cases.push_back(begin("constant_warmup", {warm}));
    cases.push_back(begin("cosine", {cosine_plain}));
    cases.push_back(begin("cosine_warmup_floor", {cosine_floor}));
    cases.push_back(begin("cosine_warmup_beyond_the_end", {cosine_late}));
    cases.push_back(begin("step", {stepped}));
    cases.push_back(begin("step_warmup", {stepped_warm}));
    cases.push_back(begin("one_schedule_per_member", {plain, cosine_floor, stepped, warm, stepped_warm}));
    cases.push_back(begin("third_rank", {warm}, 2, 10));
    cases.push_back(end("training", {.rows = 32, .samples = 100, .last = 32}));
    cases.push_back(end("one_of_three_ranks", {.rows = 32, .samples = 100, .world = 3, .parts = 9, .last = 4}));
    cases.push_back(end("last_of_three_ranks", {.rows = 32, .samples = 100, .world = 3, .parts = 1, .last = 31}));
    cases.push_back(end("evaluation", {.rows = 32, .samples = 100, .training = false}));
    cases.push_back(push(1, 4, 1, 0));
    cases.push_back(push(1, 4, 6, 0));
    cases.push_back(push(3, 3, 7, 5));
    cases.push_back(push(2, 1, 2, 0));
    cases.push_back(push(1, 5, 3, 0xFFFFFFFEull));
}

}  // namespace millrace::ops::cases
