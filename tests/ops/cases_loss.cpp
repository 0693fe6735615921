#include <limits>

#include <fmt/format.h>

#include "models/collective/ops/diversity.h"
#include "models/leak_cnn/ops/sounds.h"
#include "op_case.h"

namespace millrace::ops::cases {
namespace {

constexpr double kLossNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLossInfinity = std::numeric_limits<double>::infinity();

struct LossShape {
    int k, rows, cols;
    [[nodiscard]] std::string text() const { return fmt::format("K{}_B{}_C{}", k, rows, cols); }
};

OpCase entropy(const LossShape& s, const std::string& note, Values logits, Values labels, double scale = 1, bool gradient = true,
               Layout layout = kDense) {
    namespace at = cross_entropy;
    OpCase c;
    c.name = fmt::format("cross_entropy/{}/{}", note, s.text());
    c.op = &cross_entropy::kDef;
    c.params = LossParams{scale};
    c.members = s.k;
    c.states = sample_states(s.k);
    c.slot(at::logits, Element::real, s.k, 1, s.rows, s.cols, std::move(logits), layout);
    c.slot(at::labels, Element::i32, s.k, 1, s.rows, 1, std::move(labels));
    c.state(at::state);
    if (gradient) c.slot(at::dlogits, Element::real, s.k, 1, s.rows, s.cols, poison(), layout);
    return c;
}

/// With a weight for each class.
OpCase with_weights(OpCase c, Values weights = uniform(0.3, 20)) {
    const Slot& logits = c.slots[cross_entropy::logits];
    c.name.replace(0, c.name.find('/'), "cross_entropy/weights");
    return c.slot(cross_entropy::weights, Element::stat, c.members, 1, 1, logits.cols, std::move(weights));
}

void add_weighted_entropy(std::vector<OpCase>& cases) {
    for (const LossShape& s : {LossShape{1, 1, 2}, LossShape{3, 5, 10}, LossShape{2, 37, 1}, LossShape{3, 257, 10},
                               LossShape{2, 131, 67}, LossShape{1, 5, 1000}, LossShape{1, 0, 10}})
        cases.push_back(with_weights(entropy(s, "plain", uniform(-3, 3), integers(0, s.cols - 1), 0.5)));
    const LossShape small{2, 6, 10};
    cases.push_back(with_weights(entropy(small, "loss_only", uniform(-3, 3), integers(0, 9), 1, false)));
    cases.push_back(with_weights(entropy(small, "windows", uniform(-3, 3), integers(0, 9), 1, true, kWindow)));
    cases.push_back(with_weights(entropy(small, "zeros", uniform(-3, 3), integers(0, 9)), given({0, 1, 2})));
    cases.push_back(with_weights(entropy({2, 3, 10}, "label_outside", uniform(-3, 3), given({4, 10, -1, 2, 3, 2147483647}))));
}

OpCase with_predictions(OpCase c) {
    c.name.replace(0, c.name.find('/'), "cross_entropy/predictions");
    return c.slot(cross_entropy::predicted, Element::i32, c.members, 1, c.slots[cross_entropy::logits].rows, 1, poison());
}

void add_predictions(std::vector<OpCase>& cases) {
    for (const LossShape& s :
         {LossShape{3, 5, 10}, LossShape{2, 37, 1}, LossShape{3, 257, 10}, LossShape{2, 131, 67}, LossShape{1, 0, 10}})
        cases.push_back(with_predictions(entropy(s, "plain", uniform(-3, 3), integers(0, s.cols - 1), 1, false)));
    cases.push_back(with_predictions(entropy({1, 4, 5}, "ties", given({1, 3, 3, 2, 3}), given({1, 2, 4, 0}))));
    cases.push_back(with_predictions(entropy({1, 4, 5}, "masked", given({1, -kLossInfinity, 3, 2, 0.5}), given({2, 2, 0, 3}))));
    cases.push_back(with_predictions(entropy({2, 3, 10}, "label_outside", uniform(-3, 3), given({4, 10, -1, 2, 3, 99}))));
}

void add_cross_entropy(std::vector<OpCase>& cases) {
    for (const LossShape& s :
         {LossShape{1, 1, 10}, LossShape{1, 2, 10}, LossShape{3, 5, 10}, LossShape{1, 32, 10}, LossShape{1, 128, 10},
          LossShape{2, 300, 7}, LossShape{1, 4, 1}, LossShape{1, 5, 1000}, LossShape{1, 0, 10}, LossShape{16, 32, 10}})
        cases.push_back(entropy(s, "plain", uniform(-3, 3), integers(0, s.cols - 1)));
    // More rows than one block of a GPU takes, with blocks of 4 and of 16 threads a row.
    for (const LossShape& s : {LossShape{3, 257, 10}, LossShape{1, 4099, 10}, LossShape{2, 513, 64}, LossShape{2, 131, 67}})
        cases.push_back(entropy(s, "many", uniform(-3, 3), integers(0, s.cols - 1), 0.5));
    cases.push_back(entropy({2, 300, 5}, "many_loss_only", uniform(-3, 3), integers(0, 4), 1, false));
    cases.push_back(entropy({2, 300, 5}, "many_label_outside", uniform(-3, 3), integers(0, 5)));
    const LossShape small{2, 6, 10};
    cases.push_back(entropy(small, "scaled", uniform(-3, 3), integers(0, 9), 0.25));
    cases.push_back(entropy(small, "loss_only", uniform(-3, 3), integers(0, 9), 1, false));
    cases.push_back(entropy(small, "windows", uniform(-3, 3), integers(0, 9), 1, true, kWindow));
    cases.push_back(entropy(small, "large", given({9984, -9984, 9920, 0, 3, 2, 1, 16, -29952, 9984}), integers(0, 9)));
    cases.push_back(entropy({1, 4, 5}, "ties", given({1, 3, 3, 2, 3}), given({1, 2, 4, 0})));
    cases.push_back(entropy({1, 4, 5}, "masked", given({1, -kLossInfinity, 3, 2, 0.5}), given({2, 2, 0, 3})));
    cases.push_back(entropy({2, 3, 10}, "label_outside", uniform(-3, 3), given({4, 10, -1, 2, 3, 2147483647})));
    OpCase c = entropy({2, 3, 10}, "nan_logit", uniform(-3, 3).with(14, kLossNan), integers(0, 9));
    c.makes_nan = true;
    c.slots[cross_entropy::dlogits].compare = false;  // of a row without a loss
    cases.push_back(c);
    c = entropy({2, 3, 10}, "infinite_logit", uniform(-3, 3).with(31, kLossInfinity), integers(3, 9));
    c.makes_nan = true;
    c.slots[cross_entropy::dlogits].compare = false;
    cases.push_back(c);
    c = entropy({2, 600, 10}, "many_nan_logit", uniform(-3, 3).with(2995, kLossNan),
                integers(0, 9));  // of the first member alone
    c.makes_nan = true;
    c.slots[cross_entropy::dlogits].compare = false;
    cases.push_back(c);
}

OpCase weighted(const LossShape& s, const std::string& note, Values logits, Values labels, WeightedLossParams params = {},
                Values gamma = constant(0), bool gradient = true, Layout layout = kDense) {
    namespace at = weighted_cross_entropy;
    OpCase c;
    c.name = fmt::format("weighted_cross_entropy/{}/{}", note, s.text());
    c.op = &weighted_cross_entropy::kDef;
    c.params = params;
    c.members = s.k;
    c.states = sample_states(s.k);
    c.slot(at::logits, Element::real, s.k, 1, s.rows, s.cols, std::move(logits), layout);
    c.slot(at::labels, Element::i32, s.k, 1, s.rows, 1, std::move(labels));
    c.slot(at::weights, Element::stat, s.k, 1, 1, s.cols, uniform(0.3, 2));
    c.slot(at::gamma, Element::stat, s.k, 1, 1, 1, std::move(gamma));
    c.state(at::state);
    if (gradient) c.slot(at::dlogits, Element::real, s.k, 1, s.rows, s.cols, poison(), layout);
    return c;
}

OpCase binary(int k, int rows, const std::string& note, Values logits, double scale = 1, bool gradient = true) {
    namespace at = binary_cross_entropy;
    OpCase c;
    c.name = fmt::format("binary_cross_entropy/{}/K{}_B{}", note, k, rows);
    c.op = &binary_cross_entropy::kDef;
    c.params = BinaryLossParams{scale, 2};
    c.members = k;
    c.states = sample_states(k);
    c.slot(at::logit, Element::real, k, 1, rows, 1, std::move(logits));
    c.slot(at::labels, Element::i32, k, 1, rows, 1, integers(0, 3));
    c.slot(at::weight, Element::stat, k, 1, 1, 1, uniform(0.1, 1));
    c.state(at::state);
    if (gradient) c.slot(at::dlogit, Element::real, k, 1, rows, 1, poison());
    return c;
}

/// The divisor and the rows of a whole step.
OpCase over_step(OpCase c, int slot, double divisor) {
    return c.slot(slot, Element::stat, c.members, 1, 1, 2, given({divisor, 40, 2 * divisor, 40, divisor / 2, 41}));
}

OpCase total(int k, int rows, int classes, const std::string& note, Values values) {
    namespace at = loss_total;
    OpCase c;
    c.name = fmt::format("loss_total/{}/K{}_B{}_C{}", note, k, rows, classes);
    c.op = &loss_total::kDef;
    c.params = LossTotalParams{7};
    c.members = k;
    c.slot(at::values, Element::i32, k, 1, rows, 1, std::move(values));
    if (classes > 0) c.slot(at::weights, Element::stat, k, 1, 1, classes, uniform(0.3, 2));
    return c.slot(at::total, Element::stat, k, 1, 1, 2, poison());
}

void add_totals(std::vector<OpCase>& cases) {
    for (const int rows : {1, 33, 1300, 0}) {
        cases.push_back(total(2, rows, 0, "tokens", integers(-2, 9)));
        cases.push_back(total(2, rows, 5, "weights", integers(-1, 6)));
    }
    cases.push_back(total(1, 3, 0, "far", given({2147483647, -2147483648.0, 3})));
    cases.push_back(total(1, 3, 4, "far", given({2147483647, -2147483648.0, 3})));
    const LossShape small{3, 7, 5};
    cases.push_back(over_step(weighted(small, "of_a_step", uniform(-3, 3), integers(0, 4)), weighted_cross_entropy::total, 30));
    cases.push_back(
        over_step(weighted(small, "of_a_step_without_weight", uniform(-3, 3), integers(0, 4)), weighted_cross_entropy::total, 0));
}

void add_weighted(std::vector<OpCase>& cases) {
    const Values usual = uniform(-3, 3);
    for (const LossShape& s : {LossShape{1, 1, 2}, LossShape{2, 37, 2}, LossShape{3, 5, 5}, LossShape{1, 1300, 2},
                               LossShape{1, 4, 1}, LossShape{1, 0, 5}}) {
        cases.push_back(weighted(s, "plain", usual, integers(0, s.cols - 1)));
        cases.push_back(weighted(s, "focal", usual, integers(0, s.cols - 1), {1, true}, uniform(0.5, 3)));
    }
    const LossShape small{2, 7, 5};
    cases.push_back(weighted(small, "scaled", usual, integers(0, 4), {0.25, false}));
    cases.push_back(weighted(small, "loss_only", usual, integers(0, 4), {}, constant(0), false));
    cases.push_back(weighted(small, "windows", usual, integers(0, 4), {}, constant(2), true, kWindow));
    cases.push_back(weighted(small, "certain", given({40, -40, 0, 3, -20}), integers(0, 4), {1, true}, constant(2)));
    cases.push_back(weighted(small, "label_outside", usual, given({4, 5, -1, 2, 3, 2147483647, 0})));
    cases.push_back(weighted({1, 3, 4}, "no_valid_label", usual, given({4, -1, 9})));
    OpCase c = weighted({2, 3, 4}, "nan_logit", usual.with(6, kLossNan), integers(0, 3));
    c.makes_nan = true;
    c.slots[weighted_cross_entropy::dlogits].compare = false;
    cases.push_back(c);
    for (const int rows : {1, 33, 1300, 0}) cases.push_back(binary(2, rows, "plain", uniform(-4, 4)));
    cases.push_back(binary(1, 9, "scaled", uniform(-4, 4), 0.25));
    cases.push_back(binary(1, 9, "loss_only", uniform(-4, 4), 1, false));
    cases.push_back(binary(1, 4, "certain", given({90, -90, 60, -60})));
}

OpCase square(const LossShape& s, const std::string& note, double scale = 1, bool gradient = true, Layout layout = kDense) {
    namespace at = mse;
    OpCase c;
    c.name = fmt::format("mse/{}/{}", note, s.text());
    c.op = &mse::kDef;
    c.params = LossParams{scale};
    c.members = s.k;
    c.states = sample_states(s.k);
    c.slot(at::prediction, Element::real, s.k, 1, s.rows, s.cols, uniform(-2, 2), layout);
    c.slot(at::target, Element::real, s.k, 1, s.rows, s.cols, uniform(-2, 2));
    c.state(at::state);
    if (gradient) c.slot(at::dprediction, Element::real, s.k, 1, s.rows, s.cols, poison(), layout);
    return c;
}

struct Groups {
    int k, g, rows, cols;
    [[nodiscard]] std::string text() const { return fmt::format("K{}_G{}_B{}_C{}", k, g, rows, cols); }
};

OpCase diversity(const Groups& s, const std::string& note, Values o, bool gradient = true, bool adding = false,
                 Layout layout = kDense) {
    namespace at = cosine_diversity;
    OpCase c;
    c.name = fmt::format("cosine_diversity/{}/{}", note, s.text());
    c.op = &cosine_diversity::kDef;
    c.params = DiversityParams{0.3, 0.5, 0.75};
    c.members = s.k;
    c.states = sample_states(s.k);
    c.slot(at::o, Element::real, s.k, s.g, s.rows, s.cols, std::move(o), layout);
    c.state(at::state);
    if (gradient) c.slot(at::dout, Element::real, s.k, s.g, s.rows, s.cols, adding ? uniform(-1, 1) : poison(), layout);
    return adding ? c.accumulates(at::dout) : c;
}

}  // namespace

void add_loss_cases(std::vector<OpCase>& cases) {
    add_cross_entropy(cases);
    add_weighted_entropy(cases);
    add_predictions(cases);
    add_weighted(cases);
    add_totals(cases);

    for (const LossShape& s :
         {LossShape{1, 1, 1}, LossShape{2, 7, 13}, LossShape{1, 32, 64}, LossShape{1, 300, 3}, LossShape{1, 0, 4}})
        cases.push_back(square(s, "plain"));
    cases.push_back(square({2, 7, 13}, "scaled", 0.4));
    for (const LossShape& s : {LossShape{2, 7, 13}, LossShape{1, 0, 4}}) {
        OpCase beside = square(s, "penalty");
        beside.params = LossParams{0.4, false};
        cases.push_back(beside);
    }
    OpCase stat = square({2, 7, 13}, "stat");
    for (const int slot : {mse::prediction, mse::target, mse::dprediction})
        stat.slots[static_cast<std::size_t>(slot)].element = Element::stat;
    cases.push_back(stat);
    cases.push_back(square({2, 7, 13}, "loss_only", 1, false));
    cases.push_back(square({2, 7, 13}, "windows", 1, true, kWindow));

    for (const Groups& s : {Groups{1, 2, 1, 4}, Groups{2, 3, 7, 13}, Groups{1, 5, 32, 24}, Groups{1, 2, 300, 8},
                            Groups{1, 4, 32, 128}, Groups{1, 1, 5, 6}})
        cases.push_back(diversity(s, "positive", uniform(0.1, 1)));
    cases.push_back(diversity({2, 3, 2, 5}, "mixed_signs", uniform(-1, 1)));
    // Opposite directions: the mean cosine is -1 and its absolute value falls when o moves away.
    cases.push_back(diversity({1, 2, 1, 4}, "opposite", given({1, 2, -1, 0.5, -1, -2, 1, -0.25})));
    cases.push_back(diversity({1, 2, 1, 4}, "orthogonal", given({1, 0, 0, 0, 0, 1, 0, 0})));
    cases.push_back(diversity({1, 2, 2, 3}, "zero_row", given({0, 0, 0, 1, 2, 3, 1, 1, 1, 1, 0.5, 2})));
    cases.push_back(diversity({2, 3, 7, 13}, "penalty_only", uniform(0.1, 1), false));
    cases.push_back(diversity({2, 3, 7, 13}, "adding", uniform(0.1, 1), true, true));
    cases.push_back(diversity({1, 1, 5, 6}, "adding", uniform(0.1, 1), true, true));
    cases.push_back(diversity({2, 3, 7, 13}, "concat", uniform(0.1, 1), true, false, kConcat));
}

}  // namespace millrace::ops::cases
