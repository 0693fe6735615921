#include <fmt/format.h>

#include <algorithm>

#include "bench/bench.h"
#include "models/registry.h"

namespace millrace::bench {
namespace {

struct FlowRow {
    const char *name, *preset, *peer_preset;
    std::int32_t batch;
    double bar;  ///< on a GPU
    std::vector<std::string> settings;
};

/// A row with nothing skipped, which is what the peers do, and one with arrived flows left out.
void add_flow_rows(std::vector<Workload>& all, const FlowRow& row, double bar, bool on_request) {
    Workload workload{row.name, "energy_flow", row.preset, row.batch, 1, false};
    workload.settings = {"optim.name=adamw", "optim.lr=1e-3", "optim.weight_decay=1e-5", "optim.clip_norm=1.0",
                         "model.early_stop=false"};
    workload.settings.insert(workload.settings.end(), row.settings.begin(), row.settings.end());
    workload.peer = "energy_flow";
    workload.peer_preset = row.peer_preset;
    workload.on_request = on_request;
    for (const bool skip : {false, true}) {
        Workload& added = all.emplace_back(workload);
        added.settings.push_back(skip ? "model.skip_arrived=true" : "model.skip_arrived=false");
        added.bar = skip ? 0 : bar;
        if (skip) added.name += "-skip";
    }
}

void add_energy_flow(std::vector<Workload>& all, bool gpu) {
    const std::size_t first = all.size();
    const FlowRow debug{"energy_flow-debug", "debug", "debug", 8, 2, {}};
    add_flow_rows(all, debug, gpu ? debug.bar : 1.3, false);
    if (gpu)
        for (const FlowRow& row : {FlowRow{"energy_flow-experiment", "experiment", "experiment", 16, 1.5, {}},
                                   FlowRow{"energy_flow-experiment_v2", "experiment_v2", "experiment-v2", 16, 1.5, {}},
                                   FlowRow{"energy_flow-large-b4", "large", "large-b4", 4, 1.2, {"model.steps=10"}}})
            add_flow_rows(all, row, row.bar, false);
    const FlowRow tiny{"energy_flow-tiny",
                       "debug",
                       "tiny",
                       2,
                       0,
                       {"model.width=5", "model.height=4", "model.depth=8", "model.hidden=16", "model.layers=2"}};
    add_flow_rows(all, tiny, 0, true);
    // A mode of PyTorch takes up to a minute to compile; the others are slower and run when asked for.
    if (gpu)
        for (std::size_t i = first; i < all.size(); ++i) all[i].peer_modes = "compile+graph";
}

void add_leak_cnn(std::vector<Workload>& all, bool gpu) {
    Workload row{"leak_cnn-b512", "leak_cnn", "base", 512, 1, false};
    row.bar = gpu ? 2.5 : 2;
    row.peer = "leak_cnn";
    if (gpu) row.peer_modes = "graph,compile+graph";
    all.push_back(row);
    row.name = "leak_cnn-b8192";
    row.batch = 8192;
    row.on_request = !gpu;
    all.push_back(row);
    row.name = "leak_cnn-b512-k8";
    row.batch = 512;
    row.members = 8;
    row.bar = 0;
    row.on_request = true;
    all.push_back(row);
}

/// Pictures in colour.
void add_cnn(std::vector<Workload>& all, bool gpu) {
    for (const char* size : {"32x32", "128x128"}) {
        Workload row{fmt::format("cnn-{}-b128", size), "cnn", "base", 128, 1, false};
        row.settings = {fmt::format("data.size={}", size), "data.colour=colour"};
        row.peer = "cnn";
        if (gpu) row.peer_modes = "compile+graph";
        row.bar = gpu && row.name == "cnn-32x32-b128" ? 1 : 0;
        row.on_request = row.bar == 0;
        all.push_back(row);
    }
}

void add_language(std::vector<Workload>& all, bool gpu) {
    for (const char* model : {"transformer", "k1"})
        for (const std::int32_t batch : {32, 256}) {
            Workload row{fmt::format("{}-b{}", model, batch), model, "base", batch, 1, false};
            row.peer = "language";
            row.peer_preset = model;
            row.settings = {"model.dropout=0"};
            row.bar = !gpu ? (batch == 32 && row.model == "transformer" ? 1.3 : 0) : batch == 32 ? 3 : 2.5;
            if (gpu) row.peer_modes = "compile+graph";
            row.on_request = !gpu && row.name != "transformer-b32";
            all.push_back(row);
        }
    Workload row{"transformer-b32-k8", "transformer", "base", 32, 8, false};
    row.peer = "language";
    row.peer_preset = "transformer";
    row.on_request = true;
    all.push_back(row);
    row = {"transformer-b256-dropout", "transformer", "base", 256, 1, false};
    row.peer = "language";
    row.peer_preset = "transformer";
    row.settings = {"model.dropout=0.1"};
    row.on_request = true;
    if (gpu) row.peer_modes = "compile+graph";
    all.push_back(row);
}

/// Many models at once, beside what JAX makes of them.
void add_many_members(std::vector<Workload>& all) {
    const auto one =
        std::find_if(all.begin(), all.end(), [](const Workload& row) { return row.name == "collective-debug-b128"; });
    one->peer_modes = "eager,graph,compile+graph,stacked+graph,stacked+compile+graph,jax";
    for (const int members : {16, 64, 256}) {
        Workload row{fmt::format("collective-debug-b128-k{}", members), "collective", "debug", 128, members, false};
        row.peer = "collective";
        row.peer_modes = "stacked+graph,stacked+compile+graph,jax";
        row.bar = 1.5;
        all.push_back(row);
    }
}

/// Any other preset of any family, when it is named. Peers that take every shape have those, too.
void add_presets(std::vector<Workload>& all) {
    for (const models::Family& family : models::families())
        for (const std::string& preset : family.presets) {
            const std::string name = family.name + "-" + preset;
            if (std::any_of(all.begin(), all.end(), [&](const Workload& row) { return row.name == name; })) continue;
            Workload row{name, family.name, preset, 0, 1, false};
            row.on_request = true;
            const bool language = family.name == "transformer" || family.name == "k1";
            if (language || family.name == "collective") row.peer = language ? "language" : family.name;
            row.peer_preset = language ? family.name : preset.substr(0, preset.find('-'));
            all.push_back(row);
        }
}

}  // namespace

std::vector<Workload> all_workloads(ops::DeviceKind device) {
    std::vector<Workload> all{{"collective-debug-b32", "collective", "debug", 32, 1, false},
                              {"collective-debug-b128", "collective", "debug", 128, 1, false},
                              {"collective-phase1-b256", "collective", "phase1", 256, 1, false},
                              {"collective-debug-b32-k16", "collective", "debug", 32, 16, false}};
    for (Workload& row : all) row.peer = "collective";
    const bool gpu = device == ops::DeviceKind::cuda;
    for (std::size_t i = 0, count = all.size(); gpu && i < count; ++i) {
        Workload full = all[i];
        full.name += "-f32";
        full.f32 = true;
        all.push_back(full);
    }
    if (gpu) add_many_members(all);
    add_energy_flow(all, gpu);
    add_leak_cnn(all, gpu);
    add_cnn(all, gpu);
    add_language(all, gpu);
    add_presets(all);
    return all;
}

}  // namespace millrace::bench
