#include <fmt/format.h>

#include "op_case.h"

namespace millrace::ops::cases {
namespace {

struct Shape {
    int k, g, rows, cols;
    [[nodiscard]] std::string text() const { return fmt::format("K{}_G{}_B{}_C{}", k, g, rows, cols); }
};

OpCase norm_forward(const Shape& s, const std::string& note, Layout in, Layout out) {
    namespace at = layernorm_forward;
    OpCase c;
    c.name = fmt::format("layernorm_forward/{}/{}", note, s.text());
    c.op = OpId::layernorm_forward;
    c.params = LayerNormParams{};
    c.members = s.k;
    c.slot(at::x, Element::real, s.k, s.g, s.rows, s.cols, uniform(-1, 2), in);
    c.slot(at::gamma, Element::stat, s.k, s.g, 1, s.cols, uniform(0.5, 1.5));
    c.slot(at::beta, Element::stat, s.k, s.g, 1, s.cols, uniform(-0.5, 0.5));
    c.slot(at::mean, Element::stat, s.k, s.g, s.rows, 1, poison());
    c.slot(at::inv_std, Element::stat, s.k, s.g, s.rows, 1, poison());
    return c.slot(at::y, Element::real, s.k, s.g, s.rows, s.cols, poison(), out);
}

OpCase norm_backward(const Shape& s, const std::string& note, Layout in, Layout out, bool adding) {
    namespace at = layernorm_backward;
    const Values start = adding ? uniform(-1, 1) : poison();
    OpCase c;
    c.name = fmt::format("layernorm_backward/{}/{}", note, s.text());
    c.op = OpId::layernorm_backward;
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
    if (adding) c.accumulates(at::dx).accumulates(at::dgamma).accumulates(at::dbeta);
    return c;
}

struct Table {
    int k, vocabulary, rows, cols;
    [[nodiscard]] std::string text() const { return fmt::format("K{}_V{}_B{}_C{}", k, vocabulary, rows, cols); }
};

OpCase embedding(const Table& t, const std::string& note, Values index, Layout out) {
    namespace at = embedding_forward;
    OpCase c;
    c.name = fmt::format("embedding_forward/{}/{}", note, t.text());
    c.op = OpId::embedding_forward;
    c.params = EmbeddingParams{};
    c.members = t.k;
    c.states = sample_states(t.k);
    c.slot(at::table, Element::stat, t.k, 1, t.vocabulary, t.cols, uniform(-1, 1));
    c.slot(at::index, Element::i32, t.k, 1, t.rows, 1, std::move(index));
    c.state(at::state);
    return c.slot(at::y, Element::real, t.k, 1, t.rows, t.cols, poison(), out);
}

OpCase embedding_gradient(const Table& t, const std::string& note, Values index, Layout in, bool adding) {
    namespace at = embedding_backward;
    OpCase c;
    c.name = fmt::format("embedding_backward/{}/{}", note, t.text());
    c.op = OpId::embedding_backward;
    c.params = EmbeddingParams{};
    c.members = t.k;
    c.slot(at::dy, Element::real, t.k, 1, t.rows, t.cols, uniform(-1, 1), in);
    c.slot(at::index, Element::i32, t.k, 1, t.rows, 1, std::move(index));
    c.slot(at::dtable, Element::stat, t.k, 1, t.vocabulary, t.cols, adding ? uniform(-1, 1) : poison());
    if (adding) c.accumulates(at::dtable);
    return c;
}

}  // namespace

void add_row_cases(std::vector<OpCase>& cases) {
    const Shape small{2, 3, 7, 13};
    for (const Shape& shape : {small, Shape{1, 1, 1, 1}, Shape{1, 1, 32, 256}, Shape{1, 1, 5, 384}, Shape{3, 1, 300, 3},
                               Shape{1, 1, 0, 6}, Shape{1, 2, 2, 1031}}) {
        cases.push_back(norm_forward(shape, "plain", kDense, kDense));
        cases.push_back(norm_backward(shape, "plain", kDense, kDense, false));
    }
    cases.push_back(norm_forward(small, "windows", kWindow, kConcat));
    cases.push_back(norm_backward(small, "windows", kConcat, kWindow, false));
    cases.push_back(norm_backward(small, "adding", kDense, kDense, true));

    const Table table{2, 11, 9, 6};
    const Values outside = given({0, 10, -1, 3, 11, 3, 2147483647, -2147483648.0, 3});
    cases.push_back(embedding(table, "inside", integers(0, 10), kDense));
    cases.push_back(embedding(table, "outside", outside, kDense));
    cases.push_back(embedding({1, 100, 64, 48}, "inside", integers(0, 99), kWindow));
    cases.push_back(embedding({1, 1, 1, 1}, "inside", constant(0), kDense));
    cases.push_back(embedding({1, 3, 0, 4}, "empty", constant(0), kDense));
    cases.push_back(embedding_gradient(table, "inside", integers(0, 10), kDense, false));
    cases.push_back(embedding_gradient(table, "outside", outside, kWindow, false));
    cases.push_back(embedding_gradient(table, "adding", integers(0, 10), kDense, true));
    cases.push_back(embedding_gradient({1, 7, 128, 16}, "crowded", integers(2, 3), kDense, false));
    cases.push_back(embedding_gradient({1, 3, 0, 4}, "empty", constant(0), kDense, false));
}

}  // namespace millrace::ops::cases
