#include "models/leak_cnn/ops/mel.h"

#include "data/sound/mel.h"
#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(mel_bands, Phase::data, {"x"}, {"y", write});

void mel_bands::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(y);
    c.require({x}, stat, {k, 1, rows, data::kShortWindow});
    c.require({y}, c[y].dtype == tensor::DType::f16 ? f16 : stat, {k, 1, rows, data::kMelBands});
}

}  // namespace millrace::ops
