#include <limits>

#include <fmt/format.h>

#include "op_case.h"
#include "ops/loss/loss.h"

namespace millrace::ops::cases {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Shape {
    int k, rows, cols;
    [[nodiscard]] std::string text() const { return fmt::format("K{}_B{}_C{}", k, rows, cols); }
};

OpCase entropy(const Shape& s, const std::string& note, Values logits, Values labels, double scale = 1, bool gradient = true,
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

void add_cross_entropy(std::vector<OpCase>& cases) {
    for (const Shape& s : {Shape{1, 1, 10}, Shape{1, 2, 10}, Shape{3, 5, 10}, Shape{1, 32, 10}, Shape{1, 128, 10},
                           Shape{2, 300, 7}, Shape{1, 4, 1}, Shape{1, 5, 1000}, Shape{1, 0, 10}, Shape{16, 32, 10}})
        cases.push_back(entropy(s, "plain", uniform(-3, 3), integers(0, s.cols - 1)));
    const Shape small{2, 6, 10};
    cases.push_back(entropy(small, "scaled", uniform(-3, 3), integers(0, 9), 0.25));
    cases.push_back(entropy(small, "loss_only", uniform(-3, 3), integers(0, 9), 1, false));
    cases.push_back(entropy(small, "windows", uniform(-3, 3), integers(0, 9), 1, true, kWindow));
    cases.push_back(entropy(small, "large", given({9984, -9984, 9920, 0, 3, 2, 1, 16, -29952, 9984}), integers(0, 9)));
    cases.push_back(entropy({1, 4, 5}, "ties", given({1, 3, 3, 2, 3}), given({1, 2, 4, 0})));
    cases.push_back(entropy({1, 4, 5}, "masked", given({1, -kInfinity, 3, 2, 0.5}), given({2, 2, 0, 3})));
    cases.push_back(entropy({2, 3, 10}, "label_outside", uniform(-3, 3), given({4, 10, -1, 2, 3, 2147483647})));
    OpCase c = entropy({2, 3, 10}, "nan_logit", uniform(-3, 3).with(14, kNan), integers(0, 9));
    c.makes_nan = true;
    c.slots[cross_entropy::dlogits].compare = false;  // of a row without a loss
    cases.push_back(c);
    c = entropy({2, 3, 10}, "infinite_logit", uniform(-3, 3).with(31, kInfinity), integers(3, 9));
    c.makes_nan = true;
    c.slots[cross_entropy::dlogits].compare = false;
    cases.push_back(c);
}

OpCase square(const Shape& s, const std::string& note, double scale = 1, bool gradient = true, Layout layout = kDense) {
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

    for (const Shape& s : {Shape{1, 1, 1}, Shape{2, 7, 13}, Shape{1, 32, 64}, Shape{1, 300, 3}, Shape{1, 0, 4}})
        cases.push_back(square(s, "plain"));
    cases.push_back(square({2, 7, 13}, "scaled", 0.4));
    for (const Shape& s : {Shape{2, 7, 13}, Shape{1, 0, 4}}) {
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
