#include "models/collective/ops/diversity.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(cosine_diversity, Phase::loss, {"o"}, {"state", update}, {"dout", add});

void cosine_diversity::check(Checker& c) {
    c.require({o}, real, c.shape(o)).allow({dout}, real, c.shape(o)).state(state, c.shape(o).k);
    c.that(c.params<DiversityParams>().temperature != 0, "temperature must not be 0");
}

}  // namespace millrace::ops
