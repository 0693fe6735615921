// Attention within sentences: lengths, prefixes, causal or not.

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "op_case.h"
#include "ops/attention/attention.h"

namespace millrace::ops::cases {
namespace {

struct Sentences {
    int k, sentences, positions, heads, width;
    int prefix = 0;
    bool causal = false;
    [[nodiscard]] int rows() const { return sentences * positions; }
    [[nodiscard]] int cols() const { return heads * width; }
    [[nodiscard]] AttentionParams params() const { return {heads, prefix, causal}; }
    [[nodiscard]] std::string text() const {
        return fmt::format("K{}_B{}_N{}_h{}x{}_P{}{}", k, sentences, positions, heads, width, prefix, causal ? "_causal" : "");
    }
    /// Tokens of the sentences: all, none, half, one, too many, fewer than none, all but one.
    [[nodiscard]] Values lengths() const {
        const int tokens = positions - prefix;
        return given({tokens * 1.0, 0, tokens / 2 * 1.0, 1, tokens + 5.0, -3, tokens - 1.0});
    }
};

OpCase forward(const Sentences& s, const std::string& note, Values qkv, Layout layout = kDense) {
    namespace at = attention_forward;
    OpCase c;
    c.name = fmt::format("attention_forward/{}/{}", note, s.text());
    c.op = &attention_forward::kDef;
    c.params = s.params();
    c.members = s.k;
    c.slot(at::qkv, Element::real, s.k, 1, s.rows(), 3 * s.cols(), std::move(qkv), layout);
    c.slot(at::lengths, Element::i32, s.k, 1, s.sentences, 1, s.lengths());
    c.slot(at::logsumexp, Element::stat, s.k, 1, s.rows(), s.heads, poison());
    return c.slot(at::out, Element::real, s.k, 1, s.rows(), s.cols(), poison(), layout);
}

/// The logsumexp stands for whatever the weights were divided by, and out for their mean: any numbers give a gradient that can be
/// compared. With logarithms near that of the positions the weights of a row sum up to about one.
OpCase backward(const Sentences& s, const std::string& note, Layout layout = kDense) {
    namespace at = attention_backward;
    OpCase c;
    c.name = fmt::format("attention_backward/{}/{}", note, s.text());
    c.op = &attention_backward::kDef;
    c.params = s.params();
    c.members = s.k;
    c.slot(at::dout, Element::real, s.k, 1, s.rows(), s.cols(), uniform(-1, 1), layout);
    c.slot(at::qkv, Element::real, s.k, 1, s.rows(), 3 * s.cols(), uniform(-1, 1), layout);
    c.slot(at::lengths, Element::i32, s.k, 1, s.sentences, 1, s.lengths());
    const double level = std::max(2.0, std::log(s.positions));
    c.slot(at::logsumexp, Element::stat, s.k, 1, s.rows(), s.heads, uniform(level - 1, level + 1));
    c.slot(at::out, Element::real, s.k, 1, s.rows(), s.cols(), uniform(-1, 1), layout);
    c.slot(at::delta, Element::stat, s.k, 1, s.rows(), s.heads, poison()).slots[at::delta].compare = false;
    return c.slot(at::dqkv, Element::real, s.k, 1, s.rows(), 3 * s.cols(), poison(), layout);
}

}  // namespace

void add_attention_cases(std::vector<OpCase>& cases) {
    const Sentences shapes[] = {{1, 1, 1, 1, 1},
                                {2, 3, 7, 2, 5},
                                {2, 7, 5, 3, 4, 2, true},
                                {1, 7, 13, 1, 32, 0, true},
                                {1, 2, 132, 2, 32, 4, true},
                                {1, 3, 67, 4, 32},
                                {1, 4, 33, 2, 33, 1},
                                {3, 2, 3, 8, 2, 3, true},
                                {1, 0, 5, 2, 4},
                                {1, 3, 0, 2, 4},
                                {1, 2, 17, 1, 67, 16, true},
                                {1, 2, 48, 2, 64, 5, false},
                                // one block of each width on tensor cores, then several; widths that are padded
                                {2, 7, 64, 2, 32, 0, true},
                                {1, 3, 61, 3, 16, 7, true},
                                {1, 3, 64, 1, 128, 0, true},
                                {1, 2, 65, 2, 40, 0, true},
                                {2, 2, 257, 1, 64, 0, true},
                                {1, 3, 257, 2, 16, 3, false},
                                {1, 3, 131, 1, 128, 70, true},
                                {1, 2, 193, 1, 160, 0, true},
                                // every width of the tiles without tensor cores, at their edges and one beyond
                                {1, 2, 65, 1, 31, 1, true},
                                {1, 2, 33, 2, 63},
                                {1, 2, 131, 1, 100, 0, true},
                                {1, 2, 66, 1, 129, 2, true},
                                {2, 2, 37, 2, 257, 3, true},
                                // any width on tensor cores: pairs of columns and single ones, several slices, small tiles
                                {2, 3, 70, 2, 44, 0, true},
                                {1, 2, 129, 3, 11, 5, true},
                                {1, 2, 67, 1, 180, 3, true},
                                {1, 2, 40, 1, 256},
                                {1, 2, 35, 1, 530, 0, true},
                                // heads of several slices: short sequences, then longer ones; rows that begin anywhere
                                {1, 3, 1, 2, 264, 0, true},
                                {1, 7, 23, 4, 256, 0, true},
                                {2, 3, 23, 2, 136},
                                {1, 2, 33, 1, 160, 3, true},
                                {1, 3, 64, 2, 192, 0, true},
                                {1, 2, 33, 1, 512, 0, true},
                                {1, 2, 23, 1, 720},
                                {2, 2, 65, 2, 200, 5, true},
                                {1, 2, 181, 1, 256},
                                {1, 2, 181, 1, 264, 70, true},
                                {1, 2, 64, 1, 512},
                                {1, 2, 65, 1, 720, 4, true},
                                {1, 2, 20, 1, 1030, 0, true},
                                {1, 3, 23, 3, 137, 2, true},
                                {1, 2, 70, 3, 331, 0, true},
                                {1, 3, 64, 4, 44, 0, true},
                                {2, 3, 47, 3, 45},
                                {1, 2, 181, 3, 45, 0, true},
                                // enough blocks to fill a GPU: these take two tiles a warp
                                {1, 17, 65, 16, 16, 3, true},
                                {1, 17, 129, 8, 64, 5, true},
                                {1, 1, 1000, 1, 32, 130, true}};
    for (const Sentences& s : shapes) {
        cases.push_back(forward(s, "plain", uniform(-1, 1)));
        cases.push_back(backward(s, "plain"));
    }
    const Sentences small{2, 4, 9, 2, 8, 2, true};
    cases.push_back(forward(small, "windows", uniform(-1, 1), kWindow));
    cases.push_back(backward(small, "windows", kWindow));
    const Sentences usual{1, 3, 70, 2, 32, 0, true};
    cases.push_back(forward(usual, "windows", uniform(-1, 1), kWindow));
    cases.push_back(backward(usual, "windows", kWindow));
    // Scores up to some hundreds: nothing may overflow.
    cases.push_back(forward(small, "large", uniform(-24, 24)));
    OpCase c = forward({1, 2, 6, 1, 4}, "nan", uniform(-1, 1).with(6 * 12 + 3, std::numeric_limits<double>::quiet_NaN()));
    cases.push_back(c);  // the second sentence has no token: its NaN is not looked at
}

}  // namespace millrace::ops::cases
