#include "ops/sound/mel.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(mel_bands, Phase::data, {"x"}, {"y", write});

}  // namespace millrace::ops
