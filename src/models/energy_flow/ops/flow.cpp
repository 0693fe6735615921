#include "models/energy_flow/ops/flow.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_KERNELS(flow_begin)
MILLRACE_DECLARE_KERNELS(flow_begin_backward)
MILLRACE_DECLARE_KERNELS(flow_neuron_forward)
MILLRACE_DECLARE_KERNELS(flow_neuron_backward)
MILLRACE_DECLARE_KERNELS(flow_move)
MILLRACE_DECLARE_KERNELS(flow_move_backward)
MILLRACE_DECLARE_KERNELS(flow_spawn)
MILLRACE_DECLARE_KERNELS(flow_spawn_state)
MILLRACE_DECLARE_KERNELS(flow_spawn_backward)
MILLRACE_DECLARE_KERNELS(flow_spawn_state_backward)
MILLRACE_DECLARE_KERNELS(flow_count)
MILLRACE_DECLARE_KERNELS(flow_lay)
MILLRACE_DECLARE_KERNELS(flow_lay_backward)
MILLRACE_DECLARE_KERNELS(flow_rest)
MILLRACE_DECLARE_KERNELS(flow_rest_backward)
MILLRACE_DECLARE_KERNELS(flow_clear)
MILLRACE_DECLARE_REWRITE(counted_move)

namespace {

using enum Access;

constexpr SlotDef kFlowBegin[] = {{"e"}, {"flow", write}, {"counters", write}};
static_assert(std::size(kFlowBegin) == flow_begin::slots);
constexpr SlotDef kFlowBeginBackward[] = {{"dflow"}, {"de", write}};
static_assert(std::size(kFlowBeginBackward) == flow_begin_backward::slots);
constexpr SlotDef kFlowNeuronForward[] = {{"flow"}, {"params"}, {"counters"}, {"out", write}};
static_assert(std::size(kFlowNeuronForward) == flow_neuron_forward::slots);
constexpr SlotDef kFlowNeuronBackward[] = {{"flow"}, {"params"}, {"counters"}, {"dout"}, {"dparams", add}, {"dflow", add}};
static_assert(std::size(kFlowNeuronBackward) == flow_neuron_backward::slots);
constexpr SlotDef kFlowMove[] = {{"before"}, {"u"}, {"state"}, {"counters"}, {"moved", write}, {"after", write}};
static_assert(std::size(kFlowMove) == flow_move::slots);
constexpr SlotDef kFlowMoveBackward[] = {{"dafter"}, {"moved"}, {"du", write}, {"dbefore", add}};
static_assert(std::size(kFlowMoveBackward) == flow_move_backward::slots);
constexpr SlotDef kFlowSpawn[] = {{"before"}, {"flow", update}, {"moved", update}, {"counters", update}};
static_assert(std::size(kFlowSpawn) == flow_spawn::slots);
constexpr SlotDef kFlowSpawnState[] = {{"flow"}, {"h", update}};
static_assert(std::size(kFlowSpawnState) == flow_spawn_state::slots);
constexpr SlotDef kFlowSpawnBackward[] = {{"moved"}, {"dafter", update}, {"dbefore", add}};
static_assert(std::size(kFlowSpawnBackward) == flow_spawn_backward::slots);
constexpr SlotDef kFlowSpawnStateBackward[] = {{"moved"}, {"dh", update}};
static_assert(std::size(kFlowSpawnStateBackward) == flow_spawn_state_backward::slots);
constexpr SlotDef kFlowCount[] = {{"flow"}, {"moved"}, {"counters"}, {"next", write}};
static_assert(std::size(kFlowCount) == flow_count::slots);
constexpr SlotDef kFlowLay[] = {{"flow"}, {"state", update}, {"surface", write}};
static_assert(std::size(kFlowLay) == flow_lay::slots);
constexpr SlotDef kFlowLayBackward[] = {{"flow"}, {"dsurface"}, {"dflow", write}};
static_assert(std::size(kFlowLayBackward) == flow_lay_backward::slots);
constexpr SlotDef kFlowRest[] = {{"counters"}, {"before"}, {"after", update}, {"next", update}};
static_assert(std::size(kFlowRest) == flow_rest::slots);
constexpr SlotDef kFlowRestBackward[] = {{"counters"}, {"dafter"}, {"dbefore", update}};
static_assert(std::size(kFlowRestBackward) == flow_rest_backward::slots);
constexpr SlotDef kFlowClear[] = {{"counters"},     {"earlier"},      {"out0", update},  {"out1", update},  {"out2", update},
                                  {"out3", update}, {"out4", update}, {"out5", update},  {"out6", update},  {"out7", update},
                                  {"out8", update}, {"out9", update}, {"out10", update}, {"out11", update}, {"out12", update}};
static_assert(std::size(kFlowClear) == flow_clear::slots);
constexpr Rewrite kFlowMoveRewrites[] = {MILLRACE_REWRITE(counted_move)};

}  // namespace

const OpDef flow_begin::kDef({.name = "flow_begin", .slots = kFlowBegin, .phase = Phase::forward, MILLRACE_KERNELS(flow_begin)});
const OpDef flow_begin_backward::kDef({.name = "flow_begin_backward",
                                       .slots = kFlowBeginBackward,
                                       .phase = Phase::backward,
                                       MILLRACE_KERNELS(flow_begin_backward)});
const OpDef flow_neuron_forward::kDef(
    {.name = "flow_neuron_forward", .slots = kFlowNeuronForward, .phase = Phase::forward, MILLRACE_KERNELS(flow_neuron_forward)});
const OpDef flow_neuron_backward::kDef({.name = "flow_neuron_backward",
                                        .slots = kFlowNeuronBackward,
                                        .phase = Phase::backward,
                                        MILLRACE_KERNELS(flow_neuron_backward)});
const OpDef flow_move::kDef({.name = "flow_move",
                             .slots = kFlowMove,
                             .phase = Phase::forward,
                             MILLRACE_KERNELS(flow_move),
                             .rewrites = kFlowMoveRewrites});
const OpDef flow_move_backward::kDef(
    {.name = "flow_move_backward", .slots = kFlowMoveBackward, .phase = Phase::backward, MILLRACE_KERNELS(flow_move_backward)});
const OpDef flow_spawn::kDef({.name = "flow_spawn", .slots = kFlowSpawn, .phase = Phase::forward, MILLRACE_KERNELS(flow_spawn)});
const OpDef flow_spawn_state::kDef(
    {.name = "flow_spawn_state", .slots = kFlowSpawnState, .phase = Phase::forward, MILLRACE_KERNELS(flow_spawn_state)});
const OpDef flow_spawn_backward::kDef({.name = "flow_spawn_backward",
                                       .slots = kFlowSpawnBackward,
                                       .phase = Phase::backward,
                                       MILLRACE_KERNELS(flow_spawn_backward)});
const OpDef flow_spawn_state_backward::kDef({.name = "flow_spawn_state_backward",
                                             .slots = kFlowSpawnStateBackward,
                                             .phase = Phase::backward,
                                             MILLRACE_KERNELS(flow_spawn_state_backward)});
const OpDef flow_count::kDef({.name = "flow_count", .slots = kFlowCount, .phase = Phase::forward, MILLRACE_KERNELS(flow_count)});
const OpDef flow_lay::kDef({.name = "flow_lay", .slots = kFlowLay, .phase = Phase::forward, MILLRACE_KERNELS(flow_lay)});
const OpDef flow_lay_backward::kDef(
    {.name = "flow_lay_backward", .slots = kFlowLayBackward, .phase = Phase::backward, MILLRACE_KERNELS(flow_lay_backward)});
const OpDef flow_rest::kDef({.name = "flow_rest", .slots = kFlowRest, .phase = Phase::forward, MILLRACE_KERNELS(flow_rest)});
const OpDef flow_rest_backward::kDef(
    {.name = "flow_rest_backward", .slots = kFlowRestBackward, .phase = Phase::backward, MILLRACE_KERNELS(flow_rest_backward)});
const OpDef flow_clear::kDef({.name = "flow_clear", .slots = kFlowClear, .phase = Phase::backward, MILLRACE_KERNELS(flow_clear)});

}  // namespace millrace::ops
