#include "ops/loss/loss.h"

#include "ops/kernels.h"

namespace millrace::ops {
namespace {

Checker& check_classes(Checker& c, int logits, int labels, int state, int gradients) {
    const auto [k, g, rows, cols] = c.shape(logits);
    c.require({logits}, Type::real, {k, 1, rows, cols}).allow({gradients}, Type::real, {k, 1, rows, cols});
    return c.require({labels}, Type::i32, {k, 1, rows, 1}).state(state, k).that(cols > 0, "needs at least one class");
}

}  // namespace

MILLRACE_OPERATOR(cross_entropy, Phase::loss, {"logits"}, {"labels"}, {"state", update}, {"dlogits", write});
MILLRACE_OPERATOR(weighted_cross_entropy, Phase::loss, {"logits"}, {"labels"}, {"weights"}, {"gamma"}, {"state", update},
                  {"dlogits", write}, {"total"});
MILLRACE_OPERATOR(loss_total, Phase::loss, {"values"}, {"weights"}, {"total", write});
MILLRACE_OPERATOR(binary_cross_entropy, Phase::loss, {"logit"}, {"labels"}, {"weight"}, {"state", update}, {"dlogit", write});
MILLRACE_OPERATOR(mse, Phase::loss, {"prediction"}, {"target"}, {"state", update}, {"dprediction", write});
MILLRACE_OPERATOR(cosine_diversity, Phase::loss, {"o"}, {"state", update}, {"dout", add});

void cross_entropy::check(Checker& c) { check_classes(c, logits, labels, state, dlogits).params<LossParams>(); }
void weighted_cross_entropy::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(logits);
    check_classes(c, logits, labels, state, dlogits).params<WeightedLossParams>();
    c.require({weights}, stat, {k, 1, 1, cols}).require({gamma}, stat, {k, 1, 1, 1}).allow({total}, stat, {k, 1, 1, 2});
    c.that(!c[total].present() || !c.params<WeightedLossParams>().by_rows, "rows are counted without a total");
}

void loss_total::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(values);
    c.require({values}, Type::i32, {k, 1, rows, 1}).require({total}, stat, {k, 1, 1, 2});
    c.allow({weights}, stat, {k, 1, 1, c.shape(weights).cols}).params<LossTotalParams>();
}

void binary_cross_entropy::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(logit);
    check_classes(c, logit, labels, state, dlogit).params<BinaryLossParams>();
    c.require({weight}, stat, {k, 1, 1, 1}).that(cols == 1, "there is one logit a row");
}

void mse::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(prediction);
    c.require({prediction, target}, real, {k, 1, rows, cols}).allow({dprediction}, real, {k, 1, rows, cols});
    c.state(state, k).that(cols > 0, "needs at least one column").params<LossParams>();
}

void cosine_diversity::check(Checker& c) {
    c.require({o}, real, c.shape(o)).allow({dout}, real, c.shape(o)).state(state, c.shape(o).k);
    c.that(c.params<DiversityParams>().temperature != 0, "temperature must not be 0");
}

}  // namespace millrace::ops
