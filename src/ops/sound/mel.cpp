#include "ops/sound/mel.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(mel_bands, Phase::data, {"x"}, {"y", write});

void mel_bands::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(y);
    c.require({x}, stat, {k, 1, rows, kMelWindow});
    c.require({y}, c[y].dtype == tensor::DType::f16 ? f16 : stat, {k, 1, rows, kMelBands});
}

}  // namespace millrace::ops
