#include "models/leak_cnn/ops/sounds.h"

#include "data/sound/mel.h"
#include "ops/conv/conv.h"
#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(mel_bands, Phase::data, {"x"}, {"y", write});

void mel_bands::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(y);
    c.require({x}, stat, {k, 1, rows, data::kShortWindow});
    c.require({y}, c[y].dtype == tensor::DType::f16 ? f16 : stat, {k, 1, rows, data::kMelBands});
}

MILLRACE_OPERATOR(weighted_cross_entropy, Phase::loss, {"logits"}, {"labels"}, {"weights"}, {"gamma"}, {"state", update},
                  {"dlogits", write}, {"total"});
MILLRACE_OPERATOR(binary_cross_entropy, Phase::loss, {"logit"}, {"labels"}, {"weight"}, {"state", update}, {"dlogit", write});

void weighted_cross_entropy::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(logits);
    check_classes(c, logits, labels, state, dlogits).params<WeightedLossParams>();
    c.require({weights}, stat, {k, 1, 1, cols}).require({gamma}, stat, {k, 1, 1, 1}).allow({total}, stat, {k, 1, 1, 2});
    c.that(!c[total].present() || !c.params<WeightedLossParams>().by_rows, "rows are counted without a total");
}

void binary_cross_entropy::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(logit);
    check_classes(c, logit, labels, state, dlogit).params<BinaryLossParams>();
    c.require({weight}, stat, {k, 1, 1, 1}).that(cols == 1, "there is one logit a row");
}

MILLRACE_REWRITE(line_forward, conv_forward, 0);
MILLRACE_REWRITE(line_backward, conv_backward, 0);

}  // namespace millrace::ops
