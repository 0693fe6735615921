#include "ops/gather/gather.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(gather_images, Phase::data, {"images"}, {"labels"}, {"subset"}, {"state"}, {"x", write}, {"y", write});
MILLRACE_OPERATOR(gather_rows, Phase::data, {"table"}, {"subset"}, {"state"}, {"out", write});
MILLRACE_OPERATOR(gather_features, Phase::data, {"table"}, {"labels"}, {"mean"}, {"inverse"}, {"subset"}, {"state"}, {"x", write},
                  {"y", write});
MILLRACE_OPERATOR(gather_windows, Phase::data, {"stream"}, {"ranges"}, {"state"}, {"out", write}, {"lengths", write});

}  // namespace millrace::ops
