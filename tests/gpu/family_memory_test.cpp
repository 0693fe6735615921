// Every family on the GPU: what was planned against what its free memory fell by, and no allocation once it was planned. Each in
// a process of its own, since kernels that an earlier one loaded stay.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "base/log.h"
#include "bench/row_recipe.h"
#include "data/pairs/resident_pairs.h"
#include "data/recordings/resident_recordings.h"
#include "models/backend_options.h"
#include "models/registry.h"
#include "models/weights.h"
#include "train/engine.h"
#include "train/recipe_keys.h"

namespace millrace::train {
namespace {

constexpr double kMiB = 1 << 20;

/// Workspace, store, ring and arena: what resident data needs.
constexpr std::size_t kAllocations = 4;

std::unique_ptr<data::BatchSource> pairs(std::uint32_t width) {
    constexpr std::uint32_t kPairs = 300;
    auto set = std::make_shared<data::PairSet>();
    set->name = "waves";
    set->count = kPairs;
    set->dimensions = width;
    for (std::vector<float>* rows : {&set->inputs, &set->targets})
        for (std::size_t i = 0; i < std::size_t{kPairs} * width; ++i)
            rows->push_back(0.05f * std::sin(1.3f * static_cast<float>(i) + (rows == &set->inputs ? 0.1f : 0.7f)));
    for (std::uint32_t i = 0; i < kPairs; ++i)
        (i < 45 ? set->part(data::Part::validation) : set->part(data::Part::train)).push_back(static_cast<std::int32_t>(i));
    return std::make_unique<data::PairSource>(std::move(set));
}

std::unique_ptr<data::BatchSource> recordings() {
    constexpr std::int32_t kWindows = 80, kBands = 64;
    auto set = std::make_shared<data::RecordingSet>();
    set->name = "noise";
    set->width = kBands;
    set->windows = kWindows;
    set->classes = {{"NOLEAK", "LEAK"}, {200 * kWindows, 200 * kWindows}, 1, {40, 2}};
    for (const data::Part part : data::kAllParts) {
        data::Recordings& those = set->parts[data::index_of(part)];
        those.count = part == data::Part::train ? 400 : 30;
        for (std::int32_t i = 0; i < those.count * kWindows * kBands; ++i)
            those.features.push_back(static_cast<std::uint16_t>(0x3c00 + i * 37 % 1024));
        for (std::int32_t r = 0; r < those.count; ++r) those.labels.push_back(r % 2);
    }
    set->scaling =
        std::make_shared<const data::Scaling>(data::Scaling{std::vector<float>(kBands, 0), std::vector<float>(kBands, 1)});
    return std::make_unique<data::ResidentRecordings>(std::move(set));
}

struct Case {
    std::string name;
    std::vector<std::string> flags;
};

base::Result<std::unique_ptr<Engine>> make_engine(const Case& of) {
    MILLRACE_LET(recipe, parse_recipe("", "test", {of.flags, {}}));
    MILLRACE_LET(family, models::find_family(recipe.text("model.name")));
    std::unique_ptr<data::BatchSource> source;
    if (family->data == data::DataKind::pairs) {
        source = pairs(768);
    } else if (family->data == data::DataKind::recordings) {
        source = recordings();
    } else {
        MILLRACE_LET(random, bench::random_data(recipe, family->data));
        source = std::move(random);
    }
    MILLRACE_LET(settings, read_settings(recipe, source->samples(data::Part::train)));
    EngineOptions options;
    MILLRACE_LET(precision, choose_precision(recipe.text("precision"), ops::DeviceKind::cuda));
    options.precision = precision;
    MILLRACE_LET(model, models::make(recipe, source->fields()));
    MILLRACE_LET(backend,
                 ops::make_backend(ops::DeviceKind::cuda, models::backend_options(recipe, ops::DeviceKind::cuda, precision)));
    return Engine::create(std::move(backend), std::move(model), std::move(source), settings, options);
}

base::Status use(Engine& engine) {
    const auto steps = static_cast<std::uint64_t>(engine.epoch().count());
    for (std::uint64_t step = 0; step < 4; ++step) engine.launch_step(step % steps);
    engine.launch_step(steps - 1);
    engine.backend().synchronize();
    for (const data::Part part : {data::Part::validation, data::Part::test}) MILLRACE_TRY(engine.evaluate(part));
    struct Nowhere final : io::ByteSink {
        base::Status write(io::Bytes) override { return base::ok(); }
    } nowhere;
    for (const io::MemberTensors& member : models::stored_tensors(engine.store(), 5))
        for (const auto* tensors : {&member.model, &member.optimizer})
            for (const io::TensorView& tensor : *tensors) MILLRACE_TRY(tensor.pour(nowhere));
    (void)engine.backend().forms();
    engine.launch_step(0);
    engine.backend().synchronize();
    return engine.backend().check();
}

/// Ends the process, with 0 where all is well.
[[noreturn]] void measure(const Case& of) {
    (void)dup2(STDOUT_FILENO, STDERR_FILENO);  // the memory after each stage is for people, not for the test to match
    base::set_log_level(base::LogLevel::profiling);
    const auto made = make_engine(of);
    if (!made.ok()) {
        fmt::print("{}: {}\n", of.name, made.error().text());
        std::_Exit(1);
    }
    Engine& engine = **made;
    engine.launch_step(0);
    engine.backend().synchronize();
    const ops::MemoryState planned = *engine.backend().memory();
    const base::Status used = use(engine);
    const ops::MemoryState after = *engine.backend().memory();
    const auto fall = [](const ops::MemoryState& state) {
        return (static_cast<double>(state.before) - static_cast<double>(state.free)) / kMiB;
    };
    const double plan = static_cast<double>(engine.memory_needs().total()) / kMiB, bound = std::max(0.015 * fall(planned), 32.0);
    const bool within = std::abs(fall(planned) - plan) <= bound;
    fmt::print("{:24} planned {:9.2f} MiB, taken {:9.2f} ({:+.2f}, bound {:.2f}), later {:+.2f}; {} allocations, later {}; {}\n",
               of.name, plan, fall(planned), fall(planned) - plan, bound, fall(after) - fall(planned), planned.allocations,
               after.allocations - planned.allocations, engine.memory_needs().text());
    if (!used.ok()) fmt::print("{}: {}\n", of.name, used.error().text());
    std::fflush(stdout);
    std::_Exit(used.ok() && within && planned.allocations == kAllocations && after.allocations == planned.allocations ? 0 : 1);
}

class FamilyMemory : public ::testing::TestWithParam<Case> {};

TEST_P(FamilyMemory, IsAllPlannedAndNothingIsAllocatedLater) {
    if (auto gpu = ops::cuda_available(); !gpu.ok()) GTEST_SKIP() << gpu.error().text();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(measure(GetParam()), ::testing::ExitedWithCode(0), "");
}

/// Every family with its first preset, and with `base` where it has one.
std::vector<Case> cases() {
    std::vector<Case> all;
    for (const models::Family& family : models::families())
        for (const std::string& preset : family.presets)
            if (preset == family.presets.front() || preset == "base")
                all.push_back({family.name + "_" + preset, {"model.name=" + family.name, "model.preset=" + preset}});
    all.push_back({"collective_b4096", {"model.name=collective", "model.preset=debug", "train.batch=4096"}});
    all.push_back({"collective_k16", {"model.name=collective", "model.preset=debug", "members=16"}});
    all.push_back({"transformer_wide",
                   {"model.name=transformer", "model.preset=base", "model.width=256", "model.heads=8", "model.inner=1024",
                    "train.batch=32"}});
    all.push_back({"transformer_f32", {"model.name=transformer", "model.preset=base", "precision=f32"}});
    all.push_back({"leak_cnn_b8192", {"model.name=leak_cnn", "model.preset=base", "train.batch=8192"}});
    return all;
}

INSTANTIATE_TEST_SUITE_P(Each, FamilyMemory, ::testing::ValuesIn(cases()), [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace millrace::train
