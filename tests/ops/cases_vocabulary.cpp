// The vocabulary head with its loss.

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "op_case.h"
#include "ops/vocabulary/vocabulary.h"

namespace millrace::ops::cases {
namespace {

namespace at = vocabulary_loss;

struct Head {
    int k, sentences, tokens, before, vocabulary, cols;  ///< before: positions before the first that predicts
    [[nodiscard]] int rows() const { return sentences * (before + tokens); }
};

// Tails of tiles of 64 and 128 rows or entries, several slices and blocks, widths that kernels pad, and those they refuse; at the
// end so many entries or rows that every part of them has several tiles, also for kernels of up to 256 columns.
const Head kHeads[] = {{1, 1, 1, 0, 1, 1},       {2, 3, 7, 0, 7, 16},      {1, 4, 16, 1, 64, 32},   {2, 2, 31, 1, 129, 64},
                       {1, 5, 40, 0, 1000, 128}, {1, 2, 65, 2, 300, 24},   {1, 1, 63, 0, 200, 256}, {1, 3, 5, 0, 70, 13},
                       {1, 2, 9, 0, 33, 264},    {1, 3, 0, 2, 5, 16},      {1, 0, 3, 1, 5, 16},     {1, 20, 32, 0, 2500, 48},
                       {1, 2, 20, 0, 8200, 16},  {1, 70, 64, 0, 130, 16},  {2, 5, 60, 1, 700, 128}, {1, 1, 20, 0, 17000, 72},
                       {1, 260, 64, 0, 20, 72},  {2, 3, 41, 1, 3208, 24},  {1, 2, 33, 0, 12008, 8}, {1, 3, 37, 1, 333, 144},
                       {1, 7, 39, 0, 1001, 176}, {2, 3, 41, 1, 700, 192},  {2, 2, 31, 1, 301, 208}, {1, 9, 57, 0, 1111, 224},
                       {2, 5, 61, 1, 515, 256},  {1, 1, 20, 0, 5000, 256}, {1, 70, 64, 0, 130, 200}};

OpCase loss(const Head& h, const std::string& note, const TokenLossParams& params, bool outside = false, Layout layout = kDense) {
    OpCase c;
    c.name = fmt::format("vocabulary_loss/{}/K{}_B{}_T{}_first{}_V{}_C{}", note, h.k, h.sentences, h.tokens, params.first,
                         h.vocabulary, h.cols);
    c.op = &vocabulary_loss::kDef;
    c.params = params;
    c.members = h.k;
    c.states = sample_states(h.k);
    c.slot(at::x, Element::real, h.k, 1, h.rows(), h.cols, uniform(-1, 1), layout);
    c.slot(at::weight, Element::real, h.k, 1, h.vocabulary, h.cols, uniform(-0.5, 0.5), layout);
    c.slot(at::bias, Element::stat, h.k, 1, 1, h.vocabulary, uniform(-1, 1));
    // Outside of the vocabulary behind a length (where it does not matter) or not.
    const Values ids =
        outside ? given({0, 1, h.vocabulary * 1.0, 2, -1, 2147483647, 0, -2147483648.0, 1}) : integers(0, h.vocabulary - 1);
    c.slot(at::ids, Element::i32, h.k, 1, h.sentences, h.tokens, ids, layout);
    c.slot(at::lengths, Element::i32, h.k, 1, h.sentences, 1,
           given({h.tokens * 1.0, h.tokens - 1.0, 0, h.tokens + 5.0, h.tokens / 2 * 1.0, -3, 1}));
    c.state(at::state);
    c.slot(at::losses, Element::stat, h.k, 1, h.rows(), 1, poison());
    c.slot(at::dx, Element::real, h.k, 1, h.rows(), h.cols, poison(), layout);
    c.slot(at::dweight, Element::stat, h.k, 1, h.vocabulary, h.cols, poison(), layout);
    c.slot(at::dbias, Element::stat, h.k, 1, 1, h.vocabulary, poison());
    return c.slot(at::tally, Element::stat, h.k, 1, 1, kTallyColumns, poison());
}

OpCase without(OpCase c, std::initializer_list<int> slots) {
    for (const int slot : slots) c.slots[static_cast<std::size_t>(slot)] = Slot{};
    return c;
}

/// Over the tokens and sentences of a whole step.
OpCase over_step(OpCase c) { return c.slot(at::total, Element::stat, c.members, 1, 1, 2, given({4001, 70, 3007, 70, 5003, 70})); }

OpCase adding(OpCase c) {
    for (const int slot : {at::dx, at::dweight, at::dbias, at::tally}) {
        c.slots[static_cast<std::size_t>(slot)].values = slot == at::tally ? uniform(1, 50) : uniform(-0.1, 0.1);
        c.accumulates(slot);
    }
    return c;
}

}  // namespace

std::vector<OpCase> large_vocabulary_cases() {
    std::vector<OpCase> cases{loss({2, 5, 52, 0, 8900, 72}, "plain", {1, 0, true}),
                              without(loss({3, 9, 64, 1, 7001, 128}, "plain", {1, 1, true}), {at::bias, at::dbias, at::tally}),
                              adding(loss({3, 9, 64, 1, 7001, 128}, "windows", {0.5, 1, false}, false, {8, 16, false, false})),
                              adding(loss({8, 33, 64, 0, 2100, 128}, "large_biases", {1, 0, true})),
                              loss({8, 33, 64, 0, 2100, 104}, "outside", {1, 0, true}, true),
                              over_step(loss({3, 9, 64, 1, 7001, 128}, "of_a_step", {1, 1, true})),
                              loss({1, 32, 64, 0, 10000, 256}, "plain", {1, 0, true}),
                              loss({8, 2, 64, 0, 7001, 128}, "one_tile_of_rows", {1, 0, true}),
                              loss({8, 2, 64, 0, 7001, 208}, "one_tile_of_rows", {1, 0, true}),
                              without(loss({3, 9, 61, 1, 7001, 208}, "plain", {1, 1, true}), {at::tally}),
                              adding(loss({8, 33, 64, 0, 2100, 176}, "large_biases", {1, 0, true})),
                              without(adding(loss({8, 33, 64, 0, 2100, 128}, "one_large_row", {1, 0, true})), {at::tally})};
    cases.back().slots[at::x].values = cases.back().slots[at::x].values.with(3000 * 128 + 5, 1024);
    for (OpCase& c : cases)
        if (c.name.find("large_biases") != std::string::npos) c.slots[at::bias].values = given({-60, 0, 27, 28, -27, 1});
    for (OpCase& c : cases) c.name += "/large";
    return cases;
}

void add_vocabulary_cases(std::vector<OpCase>& cases) {
    for (const Head& h : kHeads) cases.push_back(loss(h, "plain", {1, h.before, false}));
    const Head small{2, 4, 37, 2, 150, 32}, blocks{1, 7, 60, 0, 200, 64};
    cases.push_back(loss(small, "as_loss", {0.25, 1, true}));
    cases.push_back(loss(small, "windows", {1, 2, true}, false, kWindow));
    cases.push_back(loss(small, "outside", {1, 1, true}, true));
    cases.push_back(loss({1, 2, 3, 0, 40, 16}, "nothing_but_outside", {1, 0, true}, true));
    cases.back().slots[at::ids].values = constant(40);
    cases.push_back(loss({1, 3, 6, 1, 40, 16}, "no_token", {1, 1, true}));
    cases.back().slots[at::lengths].values = constant(0);
    cases.push_back(adding(loss(small, "adding", {0.5, 1, false})));
    cases.push_back(adding(loss(blocks, "adding", {1, 0, true})));
    cases.push_back(without(loss(blocks, "without_bias", {1, 0, true}), {at::bias, at::dbias}));
    cases.push_back(without(loss(blocks, "evaluation", {1, 0, true}), {at::dx, at::dweight, at::dbias}));
    cases.push_back(without(loss(blocks, "bare", {1, 0, true}), {at::bias, at::dx, at::dweight, at::dbias, at::tally}));
    cases.push_back(without(loss(blocks, "only_dx", {1, 0, true}), {at::dweight, at::dbias}));
    cases.push_back(without(loss(blocks, "only_weights", {1, 0, true}), {at::dx}));
    const Head wide{2, 5, 60, 1, 300, 128}, wider{2, 5, 59, 1, 300, 176}, widest{2, 5, 61, 1, 301, 256};
    for (const Head& h : {small, blocks, wide, wider, widest}) {
        cases.push_back(over_step(loss(h, "loss_of_a_step", {1, 0, true})));
        cases.push_back(over_step(adding(loss(h, "of_a_step", {0.5, 0, false}))));
    }
    for (const Head& h : {wide, wider, widest}) {
        cases.push_back(loss(h, "outside", {1, 1, true}, true));
        cases.push_back(adding(loss(h, "windows", {0.5, 1, false}, false, {8, 16, false, false})));
        cases.push_back(without(loss(h, "evaluation", {1, 1, true}), {at::dx, at::dweight, at::dbias}));
    }
    const Head few{2, 2, 30, 1, 300, 128};  // one tile of rows, whose gradients need no joining
    cases.push_back(loss(few, "few_rows", {1, 1, true}));
    cases.push_back(adding(loss(few, "windows", {0.5, 1, false}, false, {8, 16, false, false})));
    const Head one{2, 5, 60, 1, 101, 128};  // one tile of the vocabulary, whose rows need no joining
    cases.push_back(loss(one, "one_tile", {0.25, 1, true}));
    cases.push_back(loss(one, "outside", {1, 1, true}, true));
    cases.push_back(loss(one, "no_token", {1, 1, true}));
    cases.back().slots[at::lengths].values = constant(0);
    cases.push_back(loss(one, "first_block_empty", {1, 1, true}));
    cases.back().slots[at::lengths].values = given({0, 0, 0, 60, 7});
    cases.push_back(adding(loss(one, "windows", {0.5, 1, false}, false, {8, 16, false, false})));
    cases.push_back(without(loss(one, "evaluation", {1, 1, true}), {at::dx, at::dweight, at::dbias}));
    cases.push_back(without(loss(one, "only_weights", {1, 1, true}), {at::dx}));
    cases.push_back(without(loss(wide, "without_bias", {1, 1, true}), {at::bias, at::dbias}));
    OpCase c;
    for (const Head& h : {small, wide, widest}) {
        c = loss(h, "steep", {1, 1, true});  // logits that grow from tile to tile: every maximum gives way to the next
        std::vector<double> bias;
        for (int v = 0; v < h.vocabulary; ++v) bias.push_back(v - 75.0);
        c.slots[at::bias].values = given(bias);
        cases.push_back(c);
        c.name += "/untallied";
        cases.push_back(without(c, {at::tally}));
    }
    // So many rows that one block sees both tiles of the vocabulary: 0 is the reference unless a row's sum does not allow it.
    const Head both{4, 20, 60, 0, 130, 72};
    const auto add_both = [&](const Head& h, const std::string& note, double bias, double slope) {
        c = without(loss(h, note, {1, 0, true}), {at::tally});
        std::vector<double> biases;
        for (int v = 0; v < h.vocabulary; ++v) biases.push_back(bias + slope * v);
        c.slots[at::bias].values = given(biases);
        cases.push_back(c);
    };
    add_both(both, "two_tiles", 0, 0.125);
    add_both(both, "rising", -100, 2);
    add_both({4, 20, 60, 0, 130, 256}, "rising", -100, 2);
    add_both(both, "falling", 10000, -16);
    c.name += "/loss_alone";
    cases.push_back(without(c, {at::dx, at::dweight, at::dbias}));
    add_both(both, "low", -300, 0);
    c = without(loss(both, "one_large_row", {1, 0, true}), {at::tally, at::dbias});
    c.slots[at::x].values = c.slots[at::x].values.with(500 * both.cols + 5, 1024);
    cases.push_back(c);
    c = without(loss(both, "nan_in_a_row", {1, 0, true}), {at::tally});
    c.slots[at::x].values = c.slots[at::x].values.with(500 * both.cols + 5, std::numeric_limits<double>::quiet_NaN());
    c.makes_nan = true;
    for (const int slot : {at::losses, at::dx, at::dweight, at::dbias}) c.slots[static_cast<std::size_t>(slot)].compare = false;
    cases.push_back(c);
    c = loss(small, "large", {1, 1, true});  // of numbers whose sums are exact
    c.slots[at::x].values = given({1, 0, -1, 0, 0});
    c.slots[at::weight].values = given({0.5, 0.25, -0.25, 0, 1, -0.75, 0.5});
    c.slots[at::bias].values = given({9984, -9984, 9920, 0, 3, 2, 1, 16, -29952, 9984});
    cases.push_back(c);
    c = loss(small, "ties", {1, 1, true});  // all logits equal: the lowest entry is the largest
    c.slots[at::x].values = c.slots[at::bias].values = constant(0);
    c.slots[at::ids].values = given({0, 1, 0, 149, 0});
    cases.push_back(c);
    for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        c = loss(small, std::isnan(value) ? "nan" : "infinite", {1, 1, true});
        c.slots[at::x].values = c.slots[at::x].values.with(3 * small.cols + 5, value);
        c.makes_nan = true;
        for (const int slot : {at::losses, at::dx, at::dweight, at::dbias, at::tally})
            c.slots[static_cast<std::size_t>(slot)].compare = false;
        cases.push_back(c);
    }
}

}  // namespace millrace::ops::cases
