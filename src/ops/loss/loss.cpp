#include "ops/loss/loss.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(cross_entropy, Phase::loss, {"logits"}, {"labels"}, {"state", update}, {"dlogits", write});
MILLRACE_OPERATOR(weighted_cross_entropy, Phase::loss, {"logits"}, {"labels"}, {"weights"}, {"gamma"}, {"state", update},
                  {"dlogits", write}, {"total"});
MILLRACE_OPERATOR(loss_total, Phase::loss, {"values"}, {"weights"}, {"total", write});
MILLRACE_OPERATOR(binary_cross_entropy, Phase::loss, {"logit"}, {"labels"}, {"weight"}, {"state", update}, {"dlogit", write});
MILLRACE_OPERATOR(mse, Phase::loss, {"prediction"}, {"target"}, {"state", update}, {"dprediction", write});
MILLRACE_OPERATOR(cosine_diversity, Phase::loss, {"o"}, {"state", update}, {"dout", add});

}  // namespace millrace::ops
