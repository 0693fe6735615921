#include "ops/recurrent/gru.h"

#include "ops/kernels.h"

namespace millrace::ops {
namespace {

std::int64_t forward_flops(const Record& r) {
    namespace at = gru_forward;
    return product_flops(r.slots[at::out], 3 * (r.slots[at::w_ih].cols + r.slots[at::w_hh].cols));
}
std::int64_t backward_flops(const Record& r) {
    namespace at = gru_backward;
    std::int64_t sum = 0;
    for (std::size_t a = at::a0; a <= at::a3 && r.slots[a].present(); a += 2)
        sum += product_flops(r.slots[at::dh], r.slots[a].cols);
    return sum;
}

}  // namespace

MILLRACE_OPERATOR_WITH(gru_forward, Phase::forward, forward_flops, {"x"}, {"h"}, {"mask"}, {"flag"}, {"w_ih"}, {"w_hh"}, {"b_ih"},
                       {"b_hh"}, {"scratch", write}, {"gates", write}, {"out", write});
MILLRACE_OPERATOR_WITH(gru_backward, Phase::backward, backward_flops, {"dh", update}, {"gates"}, {"h"}, {"mask"}, {"flag"},
                       {"a0"}, {"w0"}, {"a1"}, {"w1"}, {"a2"}, {"w2"}, {"a3"}, {"w3"}, {"dgates", write});

}  // namespace millrace::ops
