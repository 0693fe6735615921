// What the planner says an energy flow step takes on the device, for every profile and way of computing again. Allocates nothing.
//   flow_plan [f32|bf16]

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "base/units.h"
#include "data/pairs/resident_pairs.h"
#include "models/energy_flow/energy_flow.h"
#include "ops/optimizer/optimizer.h"
#include "tape/program.h"
#include "train/memory_plan.h"
#include "train/step_program.h"

namespace {

using namespace millrace;

struct Profile {
    const char* name;
    std::int32_t width, height, depth, hidden, layers;
    std::vector<std::int32_t> batches;
};

models::EnergyFlowConfig config_of(const Profile& profile, models::Recompute recompute) {
    models::EnergyFlowConfig c;
    c.width = profile.width;
    c.height = profile.height;
    c.depth = profile.depth;
    c.hidden = profile.hidden;
    c.layers = profile.layers;
    c.recompute = recompute;
    return c;
}

base::Result<train::MemoryNeeds> needs_of(const models::EnergyFlowConfig& config, std::int32_t batch, tape::Precision precision) {
    constexpr std::uint32_t kPairs = 5000;  // of the built-in set, about
    MILLRACE_LET(backend, ops::make_backend(ops::DeviceKind::cpu, {}));
    tape::StoreOptions options;
    options.precision = precision;
    tape::Store store(*backend, options);
    models::EnergyFlow model(config);
    auto set = std::make_shared<data::PairSet>();
    set->count = kPairs;
    set->dimensions = static_cast<std::uint32_t>(config.embedding);
    for (std::uint32_t i = 0; i < kPairs; ++i) set->part(data::Part::train).push_back(static_cast<std::int32_t>(i));
    data::PairSource source(set);
    MILLRACE_TRY(source.declare(store));
    MILLRACE_TRY(model.declare(store));
    MILLRACE_TRY(store.seal());
    optim::OptimizerSettings settings;
    settings.kind = ops::OptimizerKind::adamw;
    tape::Arena arena(*backend);
    const tape::Program program("step", store, train::build_training_step(store, model, source, settings, {batch, 1, 0}), arena);
    return train::needs_of(store, arena.size());
}

base::Status print_plans(tape::Precision precision) {
    const std::array<Profile, 5> profiles{{{"debug", 20, 20, 10, 256, 2, {8}},
                                           {"experiment", 50, 50, 20, 512, 2, {16}},
                                           {"experiment_v2", 28, 28, 40, 512, 3, {16}},
                                           {"large", 80, 80, 60, 1024, 3, {64, 32, 16, 8, 4}},
                                           {"wide", 100, 100, 50, 1024, 3, {32, 16, 8, 4}}}};
    using models::Recompute;
    fmt::print("| profile | rows at once | none | gates | step | of that outside the activations |\n|---|---|---|---|---|---|\n");
    for (const Profile& profile : profiles)
        for (const std::int32_t batch : profile.batches) {
            fmt::print("| `{}` | {} |", profile.name, batch);
            std::int64_t outside = 0;
            for (const Recompute recompute : {Recompute::none, Recompute::gates, Recompute::step}) {
                MILLRACE_LET(needs, needs_of(config_of(profile, recompute), batch, precision));
                fmt::print(" {} |", base::print_bytes(static_cast<std::uint64_t>(needs.total())));
                outside = needs.total() - needs.activations;
            }
            fmt::print(" {} |\n", base::print_bytes(static_cast<std::uint64_t>(outside)));
        }
    return base::ok();
}

}  // namespace

int main(int argc, char** argv) {
    const auto status = print_plans(argc > 1 && std::string(argv[1]) == "f32" ? tape::Precision::f32 : tape::Precision::bf16);
    if (status.ok()) return 0;
    fmt::print(stderr, "flow_plan: {}\n", status.error().text());
    return status.error().exit_status;
}
