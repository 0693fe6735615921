#include "models/leak_cnn/ops/lines.h"

#include "ops/conv/conv.h"
#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_REWRITE(line_forward, conv_forward, 0);
MILLRACE_REWRITE(line_backward, conv_backward, 0);

}  // namespace millrace::ops
