#include "ops/text/text.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(token_embed, Phase::forward, {"table"}, {"position"}, {"before"}, {"ids"}, {"lengths"}, {"state", update},
                  {"y", write});
MILLRACE_OPERATOR(token_embed_backward, Phase::backward, {"dy"}, {"ids"}, {"lengths"}, {"dtable", add}, {"dposition", add},
                  {"dbefore", add});
MILLRACE_OPERATOR(masked_mean, Phase::forward, {"x"}, {"lengths"}, {"y", write});
MILLRACE_OPERATOR(masked_mean_backward, Phase::backward, {"dy"}, {"lengths"}, {"dx", add});
MILLRACE_OPERATOR(token_cross_entropy, Phase::loss, {"logits"}, {"ids"}, {"lengths"}, {"state", update}, {"dlogits", write},
                  {"tally", add}, {"total"});
MILLRACE_OPERATOR(token_choose, Phase::forward, {"logits"}, {"ids", update}, {"lengths", update});

}  // namespace millrace::ops
