#include "ops/loss/loss.h"

#include "ops/kernels.h"

namespace millrace::ops {

Checker& check_classes(Checker& c, int logits, int labels, int state, int gradients) {
    const auto [k, g, rows, cols] = c.shape(logits);
    c.require({logits}, Type::real, {k, 1, rows, cols}).allow({gradients}, Type::real, {k, 1, rows, cols});
    return c.require({labels}, Type::i32, {k, 1, rows, 1}).state(state, k).that(cols > 0, "needs at least one class");
}

MILLRACE_OPERATOR(cross_entropy, Phase::loss, {"logits"}, {"labels"}, {"state", update}, {"dlogits", write}, {"weights"},
                  {"predicted", write});
MILLRACE_OPERATOR(loss_total, Phase::loss, {"values"}, {"weights"}, {"total", write});
MILLRACE_OPERATOR(mse, Phase::loss, {"prediction"}, {"target"}, {"state", update}, {"dprediction", write});

void cross_entropy::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(logits);
    check_classes(c, logits, labels, state, dlogits)
        .allow({weights}, stat, {k, 1, 1, cols})
        .allow({predicted}, i32, {k, 1, rows, 1});
    c.params<LossParams>();
}

void loss_total::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(values);
    c.require({values}, Type::i32, {k, 1, rows, 1}).require({total}, stat, {k, 1, 1, 2});
    c.allow({weights}, stat, {k, 1, 1, c.shape(weights).cols}).params<LossTotalParams>();
}

void mse::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(prediction);
    c.require({prediction, target}, real, {k, 1, rows, cols}).allow({dprediction}, real, {k, 1, rows, cols});
    c.state(state, k).that(cols > 0, "needs at least one column").params<LossParams>();
}

}  // namespace millrace::ops
