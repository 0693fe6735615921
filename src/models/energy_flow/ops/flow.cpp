#include "models/energy_flow/ops/flow.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(flow_begin, Phase::forward, {"e"}, {"flow", write}, {"counters", write});
MILLRACE_OPERATOR(flow_begin_backward, Phase::backward, {"dflow"}, {"de", write});
MILLRACE_OPERATOR(flow_neuron_forward, Phase::forward, {"flow"}, {"params"}, {"counters"}, {"out", write});
MILLRACE_OPERATOR(flow_neuron_backward, Phase::backward, {"flow"}, {"params"}, {"counters"}, {"dout"}, {"dparams", add},
                  {"dflow", add});
MILLRACE_OPERATOR(flow_move, Phase::forward, {"before"}, {"u"}, {"state"}, {"counters"}, {"moved", write}, {"after", write});
MILLRACE_OPERATOR(flow_move_backward, Phase::backward, {"dafter"}, {"moved"}, {"du", write}, {"dbefore", add});
MILLRACE_OPERATOR(flow_spawn, Phase::forward, {"before"}, {"flow", update}, {"moved", update}, {"counters", update});
MILLRACE_OPERATOR(flow_spawn_state, Phase::forward, {"flow"}, {"h", update});
MILLRACE_OPERATOR(flow_spawn_backward, Phase::backward, {"moved"}, {"dafter", update}, {"dbefore", add});
MILLRACE_OPERATOR(flow_spawn_state_backward, Phase::backward, {"moved"}, {"dh", update});
MILLRACE_OPERATOR(flow_count, Phase::forward, {"flow"}, {"moved"}, {"counters"}, {"next", write});
MILLRACE_OPERATOR(flow_scatter, Phase::forward, {"flow"}, {"state", update}, {"surface", write});
MILLRACE_OPERATOR(flow_scatter_backward, Phase::backward, {"flow"}, {"dsurface"}, {"dflow", write});
MILLRACE_OPERATOR(flow_skip, Phase::forward, {"counters"}, {"before"}, {"after", update}, {"next", update});
MILLRACE_OPERATOR(flow_skip_backward, Phase::backward, {"counters"}, {"dafter"}, {"dbefore", update});
MILLRACE_OPERATOR(flow_clear, Phase::backward, {"counters"}, {"earlier"}, {"out0", update}, {"out1", update}, {"out2", update},
                  {"out3", update}, {"out4", update}, {"out5", update}, {"out6", update}, {"out7", update}, {"out8", update},
                  {"out9", update}, {"out10", update}, {"out11", update}, {"out12", update});

MILLRACE_REWRITE(counted_move, flow_move, 0);

}  // namespace millrace::ops
