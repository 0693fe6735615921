#include <fmt/format.h>

#include "data/sound/mel.h"
#include "models/leak_cnn/ops/sounds.h"
#include "op_case.h"
#include "ops/norm/layernorm.h"

namespace millrace::ops::cases {
namespace {

struct RowShape {
    int k, g, rows, cols;
    [[nodiscard]] std::string text() const { return fmt::format("K{}_G{}_B{}_C{}", k, g, rows, cols); }
};

OpCase norm_forward(const RowShape& s, const std::string& note, Layout in, Layout out, bool residual = false) {
    namespace at = layernorm_forward;
    OpCase c;
    c.name = fmt::format("layernorm_forward/{}/{}", note, s.text());
    c.op = &layernorm_forward::kDef;
    c.params = LayerNormParams{};
    c.members = s.k;
    c.slot(at::x, Element::real, s.k, s.g, s.rows, s.cols, uniform(-1, 2), in);
    if (residual) {
        c.slot(at::residual, Element::real, s.k, s.g, s.rows, s.cols, uniform(-2, 1), out);
        c.slot(at::sum, Element::real, s.k, s.g, s.rows, s.cols, poison(), in);
    }
    c.slot(at::gamma, Element::stat, s.k, s.g, 1, s.cols, uniform(0.5, 1.5));
    c.slot(at::beta, Element::stat, s.k, s.g, 1, s.cols, uniform(-0.5, 0.5));
    c.slot(at::mean, Element::stat, s.k, s.g, s.rows, 1, poison());
    c.slot(at::inv_std, Element::stat, s.k, s.g, s.rows, 1, poison());
    return c.slot(at::y, Element::real, s.k, s.g, s.rows, s.cols, poison(), out);
}

OpCase norm_backward(const RowShape& s, const std::string& note, Layout in, Layout out, bool adding, bool residual = false) {
    namespace at = layernorm_backward;
    const Values start = adding ? uniform(-1, 1) : poison();
    OpCase c;
    c.name = fmt::format("layernorm_backward/{}/{}", note, s.text());
    c.op = &layernorm_backward::kDef;
    c.params = LayerNormParams{};
    c.members = s.k;
    c.slot(at::dy, Element::real, s.k, s.g, s.rows, s.cols, uniform(-1, 1), out);
    c.slot(at::x, Element::real, s.k, s.g, s.rows, s.cols, uniform(-1, 2), in);
    c.slot(at::gamma, Element::stat, s.k, s.g, 1, s.cols, uniform(0.5, 1.5));
    c.slot(at::mean, Element::stat, s.k, s.g, s.rows, 1, uniform(0.4, 0.6));
    c.slot(at::inv_std, Element::stat, s.k, s.g, s.rows, 1, uniform(0.8, 1.4));
    c.slot(at::dx, Element::real, s.k, s.g, s.rows, s.cols, start, in);
    c.slot(at::dgamma, Element::stat, s.k, s.g, 1, s.cols, start);
    c.slot(at::dbeta, Element::stat, s.k, s.g, 1, s.cols, start);
    if (residual) c.slot(at::dresidual, Element::real, s.k, s.g, s.rows, s.cols, poison(), out);
    if (adding) c.accumulates(at::dx).accumulates(at::dgamma).accumulates(at::dbeta);
    return c;
}

OpCase mel(int k, int rows, const std::string& note, const Values& samples, Element out, Layout layout = kDense) {
    namespace at = mel_bands;
    OpCase c;
    c.name = fmt::format("mel_bands/{}{}/K{}_B{}", note, out == Element::f16 ? "_f16" : "", k, rows);
    c.op = &mel_bands::kDef;
    c.params = MelBandsParams{};
    c.members = k;
    // Of f16 the neighbour may be taken: a step of 1/1024 of the value at most.
    if (out == Element::f16) c.f32_tolerance = 1.0 / 1000;
    c.slot(at::x, Element::stat, k, 1, rows, data::kShortWindow, samples, layout);
    return c.slot(at::y, out, k, 1, rows, data::kMelBands, poison(), layout);
}

}  // namespace

void add_row_cases(std::vector<OpCase>& cases) {
    const RowShape small{2, 3, 7, 13};
    for (const RowShape& shape :
         {small, RowShape{1, 1, 1, 1}, RowShape{1, 1, 32, 256}, RowShape{1, 1, 5, 384}, RowShape{3, 1, 300, 3},
          RowShape{1, 1, 0, 6}, RowShape{1, 2, 2, 1031}, RowShape{1, 2, 131, 128}, RowShape{1, 1, 3, 767}}) {
        cases.push_back(norm_forward(shape, "plain", kDense, kDense));
        cases.push_back(norm_backward(shape, "plain", kDense, kDense, false));
    }
    for (const RowShape& shape : {small, RowShape{2, 3, 65, 128}, RowShape{1, 1, 2, 1031}}) {
        cases.push_back(norm_forward(shape, "residual", kConcat, kDense, true));
        cases.push_back(norm_backward(shape, "residual", kConcat, kDense, shape.g > 1, true));
    }
    cases.push_back(norm_forward(small, "windows", kWindow, kConcat));
    cases.push_back(norm_backward(small, "windows", kConcat, kWindow, false));
    cases.push_back(norm_backward(small, "adding", kDense, kDense, true));
    // Several rows for each warp of a GPU, not the same number for all.
    cases.push_back(norm_backward({3, 2, 1411, 12}, "many", kDense, kDense, false));
    cases.push_back(norm_backward({2, 1, 4231, 13}, "many_adding", kDense, kDense, true));
    cases.push_back(norm_backward({1, 1, 4301, 132}, "many_residual", kConcat, kDense, false, true));
    // Rows of whole runs, of each number of them that a warp of a GPU takes, and more rows than are on their way at once.
    for (const RowShape& shape :
         {RowShape{1, 2, 19, 136}, RowShape{2, 1, 5, 264}, RowShape{1, 1, 21, 392}, RowShape{1, 2, 9, 520}}) {
        cases.push_back(norm_forward(shape, "runs", kDense, kDense, true));
        cases.push_back(norm_backward(shape, "runs", kDense, kDense, true, true));
    }
    for (const RowShape& shape : {RowShape{1, 1, 8467, 256}, RowShape{2, 1, 3203, 384}, RowShape{1, 1, 4507, 768}}) {
        cases.push_back(norm_forward(shape, "many_runs", kDense, kDense, true));
        cases.push_back(norm_backward(shape, "many_runs", kDense, kDense, shape.k > 1, true));
    }
    // Rows of several warps of a GPU, whole runs and others, and of more columns than a block's registers hold.
    for (const RowShape& shape :
         {RowShape{1, 1, 1, 769}, RowShape{2, 1, 2, 1000}, RowShape{1, 2, 7, 1024}, RowShape{1, 1, 3, 1536},
          RowShape{2, 3, 2, 2047}, RowShape{1, 1, 1, 2048}, RowShape{1, 2, 5, 4096}, RowShape{2, 1, 3, 6144},
          RowShape{1, 1, 7, 6145}, RowShape{1, 1, 2, 8192}, RowShape{1, 2, 3, 8200}, RowShape{1, 1, 0, 8200}}) {
        namespace at = layernorm_backward;
        cases.push_back(norm_forward(shape, "wide", kDense, kDense));
        cases.push_back(norm_forward(shape, "wide_residual", kDense, kDense, true));
        OpCase adding = norm_backward(shape, "wide_adding", kDense, kDense, true, true);
        adding.slots[at::dresidual].values = uniform(-1, 1);
        cases.push_back(adding.accumulates(at::dresidual));
        OpCase in_place = norm_backward(shape, "wide_in_place", kDense, kDense, false, true);
        in_place.slots[at::dx].same_memory_as = at::dy;
        cases.push_back(in_place);
    }
    for (const RowShape& shape : {RowShape{1, 2, 3, 1024}, RowShape{2, 1, 2, 8192}}) {
        cases.push_back(norm_forward(shape, "wide_windows", kWindow, kConcat, true));
        cases.push_back(norm_backward(shape, "wide_windows", kConcat, kWindow, true, true));
    }
    // Several of them for each block, not the same number for all; of 1,024 columns more than are on their way at once.
    for (const RowShape& shape : {RowShape{1, 1, 4501, 1024}, RowShape{1, 1, 557, 2048}, RowShape{2, 1, 139, 4096},
                                  RowShape{1, 1, 149, 8192}, RowShape{2, 66, 5, 2053}, RowShape{1, 1, 269, 8200}}) {
        cases.push_back(norm_forward(shape, "many_wide", kDense, kDense, true));
        cases.push_back(norm_backward(shape, "many_wide", kDense, kDense, shape.k > 1, true));
    }
    // Noise, whose bands are all about as loud: f32 and f64 give the same decibels. MelBands.* (mel_test.cpp) has tones.
    for (const Element out : {Element::stat, Element::f16}) {
        for (const auto& [k, rows] : {std::pair{1, 1}, {2, 7}, {1, 300}, {1, 0}})
            cases.push_back(mel(k, rows, "noise", uniform(-1, 1), out));
        cases.push_back(mel(2, 5, "windows", uniform(-1, 1), out, kWindow));
        cases.push_back(mel(1, 3, "quiet", uniform(-1e-6, 1e-6), out));
        cases.push_back(mel(1, 3, "silence", constant(0), out));
    }
}

}  // namespace millrace::ops::cases
